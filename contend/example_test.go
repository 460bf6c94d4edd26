package contend_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tideover/tideover/contend"
)

// Two writers add to one list. The second loses, and rebases on the winning
// value without reading it again.
func Example() {
	store := &cell{value: "ann"}
	base, version := store.get()
	store.set(base+" bob", version) // another writer was faster

	writer := contend.Must("contention")
	list, err := contend.Do(context.Background(), writer, func(_ context.Context, try contend.Try) (string, error) {
		if winner, ok := contend.Winner[string](try.Lost); ok {
			fmt.Printf("attempt %d: lost to %q\n", try.Number, winner)
			base, version = winner, version+1
		}
		mine := base + " cyd"
		if winner, ok := store.set(mine, version); !ok {
			return "", contend.Lost(winner, nil)
		}
		return mine, nil
	})
	fmt.Println(list, err)
	// Output:
	// attempt 2: lost to "ann bob"
	// ann bob cyd <nil>
}

// sqlError has what the errors of the SQL drivers have in common.
type sqlError struct{ state string }

func (e sqlError) Error() string    { return "could not serialize access (SQLSTATE " + e.state + ")" }
func (e sqlError) SQLState() string { return e.state }

// beginner stands for a database handle of database/sql.
type beginner struct{ refuse int }

func (b *beginner) inTx(_ context.Context, _ func() error) error {
	if b.refuse--; b.refuse >= 0 {
		return fmt.Errorf("commit: %w", sqlError{"40001"})
	}
	return nil
}

// A serialisable transaction is run again from its start when the database
// rejects it because of another one.
func Example_transaction() {
	db := &beginner{refuse: 2}
	writer := contend.Must("contention", contend.WithConflicts(contend.SQLConflict))

	err := writer.Do(context.Background(), func(ctx context.Context, try contend.Try) error {
		fmt.Println("attempt", try.Number)
		return db.inTx(ctx, func() error { return nil }) // BEGIN; SELECT; UPDATE; COMMIT
	})
	fmt.Println(err)
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
	// <nil>
}

// If the response is lost, the value may have been written. Update looks for it
// in what it reads before it writes again.
func ExampleUpdate() {
	store, cut := &cell{}, true
	type state struct {
		value   string
		version int
	}
	update := contend.Update[state, string]{
		Read: func(context.Context) (s state, err error) {
			s.value, s.version = store.get()
			return s, nil
		},
		Write: func(_ context.Context, s state) (string, error) {
			mine := strings.TrimSpace(s.value + " id-7")
			winner, ok := store.set(mine, s.version)
			switch {
			case !ok:
				return "", contend.Lost(winner, nil)
			case cut:
				cut = false
				return "", errors.New("connection reset") // after it was written
			}
			return mine, nil
		},
		Mine: func(s state) (string, bool) { return s.value, strings.Contains(s.value, "id-7") },
	}
	value, err := update.Do(context.Background(), contend.Must("contention"))
	fmt.Println(value, err)
	// Output:
	// id-7 <nil>
}

// The base of the waits follows the measured duration: attempts that take 200
// ms get waits from 100 ms on, and the cap grows with them.
func ExampleConfig_For() {
	var far contend.Config
	var pace contend.Pace
	fmt.Println(far.For(pace.Attempt()))
	for range 3 {
		pace.Observe(200e6)
	}
	fmt.Println(far.For(pace.Attempt()))
	// Output:
	// exponential(1ms..32ms) factor=1.5 jitter=full attempts=unlimited total-timeout=30s
	// exponential(100ms..3.2s) factor=1.5 jitter=full attempts=unlimited total-timeout=30s
}
