package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine"
)

// Parcel is the input of the workflow parcel.
type Parcel struct {
	Order string
	Items []string
	Dries time.Duration // how long the paint of the box dries
}

// parcel packs the items while the paint of the box dries, and sends the bill as soon as everything is
// packed.
func (s *service) parcel(f *engine.Flow, in Parcel) (string, error) {
	var packed []string
	err := engine.Branches(f,
		engine.Branch("pack", func(f *engine.Flow) (err error) {
			packed, err = engine.Map(f, "pack", in.Items, func(ctx context.Context, item string) (string, error) {
				return s.call(ctx, "pack "+item)
			})
			return err
		}),
		engine.Branch("box", func(f *engine.Flow) error {
			_, err := engine.Do(f, "paint", func(ctx context.Context) (string, error) {
				return s.call(ctx, "paint the box of "+in.Order)
			})
			if err != nil {
				return err
			}
			return engine.Sleep(f, "dry", in.Dries)
		}),
		engine.Branch("bill", func(f *engine.Flow) error {
			_, err := engine.Do(f, "bill", func(ctx context.Context) (string, error) {
				return s.call(ctx, fmt.Sprintf("bill %s: %d items", in.Order, len(packed)))
			})
			return err
		}, engine.After("pack")), // begins when pack has succeeded
	)
	if err != nil {
		return "", err // of the first branch that failed
	}
	return engine.Do(f, "ship", func(ctx context.Context) (string, error) { return s.call(ctx, "ship "+in.Order) })
}

func exampleParcel(i int, wait time.Duration) Parcel {
	return Parcel{Order: fmt.Sprintf("order-%d", i), Items: []string{"lamp", "desk", "chair"}, Dries: cmp.Or(wait, 8*time.Hour)}
}
