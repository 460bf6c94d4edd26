package main

import (
	"context"
	"fmt"

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
