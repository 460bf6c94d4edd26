package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

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
