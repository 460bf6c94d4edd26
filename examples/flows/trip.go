package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tideover/tideover/engine"
)

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
