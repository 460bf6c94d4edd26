package main

import (
	"context"
	"fmt"

	"github.com/tideover/tideover/engine"
)

// Order is the input of the workflow loop.
type Order struct {
	ID       string
	Articles []string
}

// Receipt is its output.
type Receipt struct {
	Held     []string
	Shipment string
}

// order reserves each article of an order, one after the other, and ships them together.
func (s *service) order(f *engine.Flow, in Order) (Receipt, error) {
	var r Receipt
	for i, article := range in.Articles {
		engine.SetStatus(f, fmt.Sprintf("reserving %d of %d", i+1, len(in.Articles)))
		held, err := engine.Do(f, "reserve", func(ctx context.Context) (string, error) {
			return s.call(ctx, "reserve "+article)
		}, engine.ForKey(article)) // the same name in each round, so a key tells the operations apart
		if err != nil {
			return r, err
		}
		r.Held = append(r.Held, held)
	}
	var err error
	r.Shipment, err = engine.Do(f, "ship", func(ctx context.Context) (string, error) {
		return s.call(ctx, fmt.Sprintf("ship %d articles of %s", len(r.Held), in.ID))
	})
	return r, err
}

func exampleOrder(i int) Order {
	o := Order{ID: fmt.Sprintf("order-%d", i)}
	for n := range 40 {
		o.Articles = append(o.Articles, fmt.Sprintf("article-%02d", n))
	}
	return o
}
