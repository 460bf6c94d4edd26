package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/retry"
)

// The errors of failed operations count for the limit of the results of a run. Without room they
// are cut.
func TestFlowCountsErrors(t *testing.T) {
	text := strings.Repeat("x", 4000)
	calls := 0
	w := engine.MustFlow("errors", func(f *engine.Flow, _ int) (string, error) {
		calls++
		fail := func(context.Context, int) (int, error) { return 0, retry.Permanent(errors.New(text)) }
		failed, err := engine.Collect(f, "fails", make([]int, 10_000), fail, engine.Parallel(1000))
		if err != nil {
			return "", err
		}
		size := 0
		for i, o := range failed {
			if size += len(o.Err.Text); o.Err.Code != "permanent" || !strings.HasPrefix(o.Err.Text, text[:100]) {
				return "", fmt.Errorf("item %d: %+v", i, o.Err)
			}
		}
		if most := 32<<20 + len(failed)*200; size > most {
			return "", fmt.Errorf("the errors have %d bytes, want at most %d", size, most)
		}
		if last := failed[len(failed)-1].Err.Text; !strings.HasSuffix(last, "xxx… (cut: the results of the run have the largest size)") {
			return "", fmt.Errorf("the last error is %q", last)
		}
		_, err = engine.Do(f, "one-more", value(text))
		if op, ok := errors.AsType[*engine.OpError](err); !ok || op.Code != "too-large" {
			return "", fmt.Errorf("want an error with the code too-large, got %w", err)
		}
		return "ok", engine.Sleep(f, "until-it-is-called-again", time.Hour)
	})
	wantRun(t, enginetest.Run(t, w, 1), "succeeded", "ok")
	if calls != 2 {
		t.Errorf("%d calls, want 2", calls)
	}
}

// A result that is not stored does not count for the limit of the results of a run.
func TestFlowCountsOnlyStoredResults(t *testing.T) {
	text := strings.Repeat("x", 300<<10)
	for name, refused := range map[string]func(*engine.Flow) error{
		"a result that is too large": func(f *engine.Flow) error {
			_, err := engine.Collect(f, "refused", make([]int, 200), func(context.Context, int) (string, error) { return text, nil })
			return err
		},
		"a result of a stuck attempt": func(f *engine.Flow) error {
			_, err := engine.Collect(f, "refused", make([]int, 200), func(context.Context, int) (string, error) {
				// real clock: it runs in the bubble of enginetest
				time.Sleep(time.Hour)
				return text[:200<<10], nil
			}, engine.Policy("fixed(1s) attempts=1 attempt-timeout=1s"), engine.Parallel(200))
			// real clock: it runs in the bubble of enginetest
			time.Sleep(20 * time.Hour) // until they have returned
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := engine.MustFlow("refused", func(f *engine.Flow, _ int) (string, error) {
				if err := refused(f); err != nil {
					return "", err
				}
				stored, err := engine.Map(f, "stored", []int{1, 2, 3}, func(context.Context, int) (string, error) { return text[:200<<10], nil })
				return fmt.Sprint(len(stored), " stored"), err
			})
			wantRun(t, enginetest.Run(t, w, 1), "succeeded", "3 stored")
		})
	}
}
