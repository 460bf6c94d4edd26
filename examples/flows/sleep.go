package main

import (
	"cmp"
	"context"
	"fmt"
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
