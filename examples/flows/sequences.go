package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
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

// Application is the input of the workflow branch: a customer applies for credit.
type Application struct {
	ID     string
	Income int
	Retry  time.Duration // how long to wait when the service that scores is busy
}

// apply scores an application. A high score is approved at once. A low one goes to a reviewer, who
// may reject it.
func (s *service) apply(f *engine.Flow, in Application) (string, error) {
	score, err := engine.Do(f, "score", func(ctx context.Context) (int, error) {
		if task, _ := engine.TaskOf(ctx); task.Attempt == 1 {
			return 0, errors.New("the service is busy") // to show a retry
		}
		_, err := s.call(ctx, "score "+in.ID)
		return in.Income / 10, err
	}, engine.Policy(fmt.Sprintf("fixed(%v) attempts=5", in.Retry)))
	if err != nil {
		return "", err
	}
	if score < 500 {
		_, err := engine.Do(f, "review", func(ctx context.Context) (string, error) {
			answer, err := s.call(ctx, "review "+in.ID)
			if err == nil && score < 300 {
				err = retry.Permanent(engine.Coded("rejected", errors.New("the income is too low")))
			}
			return answer, err
		})
		if failed, ok := errors.AsType[*engine.OpError](err); ok && failed.Code == "rejected" {
			return engine.Do(f, "decline", func(ctx context.Context) (string, error) {
				return s.call(ctx, "decline "+in.ID+": "+failed.Text)
			})
		}
		if err != nil {
			return "", err
		}
	}
	return engine.Do(f, "approve", func(ctx context.Context) (string, error) { return s.call(ctx, "approve "+in.ID) })
}

func exampleApplication(i int, wait time.Duration) Application {
	return Application{ID: fmt.Sprintf("application-%d", i), Income: 2000 * (1 + i%3), Retry: cmp.Or(wait, time.Minute)}
}

// Database is the input of the workflow named.
type Database struct{ Name string }

// migrate copies a database in 100 parts. Each part is an operation with a name of its own.
func (s *service) migrate(f *engine.Flow, in Database) (int, error) {
	const parts = 100
	for n := range parts {
		name := fmt.Sprintf("part-%02d", n)
		_, err := engine.Do(f, name, func(ctx context.Context) (string, error) {
			return s.call(ctx, fmt.Sprintf("copy %s of %s", name, in.Name))
		})
		if err != nil {
			return n, err
		}
	}
	return parts, nil
}

func exampleDatabase(i int) Database { return Database{fmt.Sprintf("database-%d", i)} }

// Meter is the input of the workflow endless, and its state between two runs.
type Meter struct {
	Name  string
	Every time.Duration
	Hour  int // number of readings so far
	Sum   int
	Last  int // number of the last reading; 0 means that there is none
}

// meter reads a meter every hour, and never ends. A run has the readings of a day. Then another
// run begins, because the operations of one run are limited.
func (s *service) meter(f *engine.Flow, in Meter) (Meter, error) {
	for range 24 {
		hour := engine.ForKey(strconv.Itoa(in.Hour))
		reading, err := engine.Do(f, "read", func(ctx context.Context) (int, error) {
			_, err := s.call(ctx, fmt.Sprintf("read %s at hour %d", in.Name, in.Hour))
			return 1, err
		}, hour)
		if err != nil {
			return in, err
		}
		in.Sum += reading
		in.Hour++
		if in.Last > 0 && in.Hour >= in.Last {
			return in, nil
		}
		if err := engine.Sleep(f, "pause", in.Every, hour); err != nil {
			return in, err
		}
	}
	return in, engine.Again(f, in)
}

func exampleMeter(i int, wait time.Duration) Meter {
	m := Meter{Name: fmt.Sprintf("meter-%d", i), Every: cmp.Or(wait, time.Hour)}
	if wait > 0 {
		m.Last = 60 // the test ends it in the third run
	}
	return m
}

// Trip is the input of the workflow trip.
type Trip struct {
	To   string
	Legs []string
	Full bool // no car is left
}

// trip books a hotel, flights and a car. If the car can't be booked, or the run is canceled, the
// flights and the hotel are given back.
func (s *service) trip(f *engine.Flow, in Trip) (string, error) {
	hotel, err := engine.DoUndo(f, "hotel",
		func(ctx context.Context) (string, error) { return s.call(ctx, "book hotel in "+in.To) },
		func(ctx context.Context, booked *string) error { // nil if it is not known whether it was booked
			_, err := s.call(ctx, "cancel hotel in "+in.To)
			return err
		}, engine.UndoPolicy("exponential(1s..5m) attempts=20"))
	if err != nil {
		return "", err
	}
	_, err = engine.MapUndo(f, "flight", in.Legs,
		func(ctx context.Context, leg string) (string, error) { return s.call(ctx, "book flight "+leg) },
		func(ctx context.Context, leg string, booked *string) error {
			_, err := s.call(ctx, "cancel flight "+leg)
			return err
		})
	if err != nil {
		return "", err
	}
	if in.Full {
		return "", errors.New("no car is left") // the run is dead when everything is undone
	}
	return hotel, nil
}

func exampleTrip(i int) Trip {
	return Trip{To: fmt.Sprintf("city-%d", i), Legs: []string{"out", "back"}, Full: i%2 == 1}
}
