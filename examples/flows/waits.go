package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tideover/tideover/engine"
)

// Trial is the input of the workflow sleep: a user tries the product.
type Trial struct {
	User  string
	Lasts time.Duration
}

// trial welcomes a user, and sends a reminder when the trial is over. Meanwhile the run costs no
// goroutine, and the process may be restarted.
func (s *service) trial(f *engine.Flow, in Trial) (string, error) {
	_, err := engine.Do(f, "welcome", func(ctx context.Context) (string, error) { return s.call(ctx, "welcome "+in.User) })
	if err != nil {
		return "", err
	}
	began, err := engine.Now(f, "began") // not time.Now: the time is recorded
	if err != nil {
		return "", err
	}
	engine.SetStatus(f, "trial until "+began.Add(in.Lasts).Format(time.DateOnly))
	if err := engine.Sleep(f, "trial", in.Lasts); err != nil {
		return "", err
	}
	return engine.Do(f, "remind", func(ctx context.Context) (string, error) { return s.call(ctx, "remind "+in.User) })
}

func exampleTrial(i int, wait time.Duration) Trial {
	return Trial{fmt.Sprintf("user-%d", i), cmp.Or(wait, 3*24*time.Hour)}
}

// Expenses is the input of the workflow approval: somebody was on a journey, and gets the money
// back if the manager approves it.
type Expenses struct {
	Journey  string
	Receipts int           // how many receipts there will be
	Patience time.Duration // how long the manager has time for the answer
}

// expenses waits for the receipts, asks the manager, and pays. Meanwhile the run costs no goroutine,
// and the process may be restarted.
func (s *service) expenses(f *engine.Flow, in Expenses) (string, error) {
	sum := 0
	for i := range in.Receipts {
		nth := engine.ForKey(strconv.Itoa(i))
		cents, err := engine.Await[int](f, "receipt", nth) // the next signal with this name
		if err != nil {
			return "", err
		}
		if _, err := engine.Do(f, "book", func(ctx context.Context) (string, error) {
			return s.call(ctx, fmt.Sprintf("book %d of %s", cents, in.Journey))
		}, nth); err != nil {
			return "", err
		}
		sum += cents
	}

	answer, err := engine.Ask(f, "manager", engine.Question{
		Text:    fmt.Sprintf("Pay %d cents for %s?", sum, in.Journey),
		Default: engine.Reject, // if there is no answer in time
	}, engine.Within(in.Patience))
	if err != nil {
		return "", err
	}
	if !answer.Approved() {
		return engine.Do(f, "refuse", func(ctx context.Context) (string, error) {
			return s.call(ctx, fmt.Sprintf("refuse %s: %s", in.Journey, cmp.Or(answer.Words, "no answer")))
		})
	}
	return engine.Do(f, "pay", func(ctx context.Context) (string, error) {
		return s.call(ctx, fmt.Sprintf("pay %d for %s", sum, in.Journey))
	})
}

func exampleExpenses(i int, wait time.Duration) Expenses {
	e := Expenses{Journey: fmt.Sprintf("journey-%d", i), Receipts: 12, Patience: 48 * time.Hour}
	if isAnswered(i) {
		return e
	}
	e.Patience = cmp.Or(wait, e.Patience)
	return e
}

// isAnswered reports whether the manager answers the question of the i-th run.
func isAnswered(i int) bool { return i%3 != 2 }

// travel stands for the people around the i-th run: it sends the receipts, and answers the question.
//
// It stores in a file how many receipts were acknowledged, and sends none of these again. Before a
// kill, one may have arrived whose acknowledgement is not stored. It is sent again with the same id,
// and the run gets it once.
func travel(ctx context.Context, eng *engine.Engine, run engine.Started, dir string, i int) error {
	file := filepath.Join(dir, "sent-"+run.ID)
	sent, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for n := len(sent); n < exampleExpenses(i, 0).Receipts; n++ {
		id := engine.ID("receipt-" + strconv.Itoa(n))
		if err := eng.Signal(ctx, run.ID, "receipt", 100+n, id, engine.SentBy("traveller")); err != nil {
			return err
		}
		if err := appendTo(file, "."); err != nil {
			return err
		}
		if err := pause(ctx, 3*time.Millisecond); err != nil {
			return err
		}
	}
	if !isAnswered(i) {
		return nil
	}
	for {
		info, err := eng.Get(ctx, run.ID)
		if err != nil || info.Finished() {
			return err
		}
		if info.Asking {
			answer := engine.Answer{Choice: engine.Approve, By: "manager", Words: "Welcome back."}
			if i%3 == 1 {
				answer.Choice, answer.Words = engine.Reject, "Not this time."
			}
			err := eng.Answer(ctx, run.ID, "manager", answer)
			if errors.Is(err, engine.ErrState) {
				return nil // it was answered before a kill
			}
			return err
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

func appendTo(file, text string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
