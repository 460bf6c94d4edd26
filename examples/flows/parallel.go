package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine"
)

// Month is the input of the workflow fanout.
type Month struct {
	Name      string
	Customers []Customer
}

// Customer is a customer, and what the customer has to pay for the month.
type Customer struct {
	Name  string
	Cents int
}

// bill sends an invoice to each customer, 16 at a time, and reports the sum when all are sent.
func (s *service) bill(f *engine.Flow, in Month) (string, error) {
	engine.SetStatus(f, fmt.Sprintf("%d invoices", len(in.Customers)))
	sent, err := engine.Map(f, "invoice", in.Customers, func(ctx context.Context, c Customer) (int, error) {
		_, err := s.call(ctx, fmt.Sprintf("invoice %s: %d", c.Name, c.Cents))
		return c.Cents, err
	}, engine.Parallel(16))
	if err != nil {
		return "", err // a *engine.MapError, which has the failures by index
	}
	sum := 0
	for _, cents := range sent {
		sum += cents
	}
	return engine.Do(f, "report", func(ctx context.Context) (string, error) {
		return s.call(ctx, fmt.Sprintf("%d invoices for %s: %d", len(sent), in.Name, sum))
	})
}

func exampleMonth(i int) Month {
	m := Month{Name: fmt.Sprintf("month-%d", i), Customers: make([]Customer, 1000)}
	for n := range m.Customers {
		m.Customers[n] = Customer{fmt.Sprintf("customer-%03d", n), 100 + n}
	}
	return m
}

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

// Survey is the input of the workflow children: a product is reviewed in several countries.
type Survey struct {
	Product   string
	Countries []string
}

// survey starts a run of another workflow for each country, waits for all, and writes a report.
// Each child has its own history, retries and timeout, and can be seen and retried alone.
func (s *service) survey(review *engine.Workflow) func(*engine.Flow, Survey) (string, error) {
	return func(f *engine.Flow, in Survey) (string, error) {
		var inputs []Review
		for _, country := range in.Countries {
			inputs = append(inputs, Review{in.Product, country})
		}
		stars, err := engine.Children[Review, int](f, "review", review, inputs, engine.Parallel(8))
		if err != nil {
			return "", err // no further child begins, and those that have begun have ended
		}
		sum := 0
		for _, n := range stars {
			sum += n
		}
		return engine.Do(f, "report", func(ctx context.Context) (string, error) {
			return s.call(ctx, fmt.Sprintf("report on %s: %d stars in %d countries", in.Product, sum, len(stars)))
		})
	}
}

// Review is the input of a child.
type Review struct{ Product, Country string }

// review is the workflow of a child.
func (s *service) review(f *engine.Flow, in Review) (int, error) {
	_, err := engine.Do(f, "ask", func(ctx context.Context) (string, error) {
		return s.call(ctx, fmt.Sprintf("ask %s about %s", in.Country, in.Product))
	})
	return 4, err
}

func exampleSurvey(i int) Survey {
	return Survey{fmt.Sprintf("product-%d", i), []string{"at", "de", "fr", "it", "nl", "pl", "pt", "se"}}
}
