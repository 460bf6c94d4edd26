package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/tideover/tideover/engine"
)

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
