package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

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
