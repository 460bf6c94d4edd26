package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

type order struct{ Lines []string }

func TestFlow(t *testing.T) {
	var calls, priced, reserved atomic.Int32
	w := engine.MustFlow("order", func(f *engine.Flow, in order) (string, error) {
		calls.Add(1)
		total, err := engine.Do(f, "price", func(context.Context) (int, error) {
			priced.Add(1)
			return 7 * len(in.Lines), nil
		})
		if err != nil {
			return "", err
		}
		held, err := engine.Map(f, "reserve", in.Lines, func(_ context.Context, line string) (string, error) {
			reserved.Add(1)
			return "held " + line, nil
		})
		if err != nil {
			return "", err
		}
		engine.SetStatus(f, "cooling down")
		if err := engine.Sleep(f, "cool-down", 24*time.Hour); err != nil {
			return "", err
		}
		return engine.Do(f, "ship", func(context.Context) (string, error) {
			return fmt.Sprint(total, strings.Join(held, ",")), nil
		})
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		begin := time.Now()
		run := e.Run(w, order{[]string{"a", "b", "c"}})
		if string(run.Output) != `"21held a,held b,held c"` || time.Since(begin) < 24*time.Hour {
			t.Errorf("%s after %v: %s", run.Output, time.Since(begin), run.Error)
		}
		if calls.Load() != 2 || priced.Load() != 1 || reserved.Load() != 3 || run.Status != "cooling down" {
			t.Errorf("%d calls, %d prices, %d reservations, status %q", calls.Load(), priced.Load(), reserved.Load(), run.Status)
		}
		for _, s := range run.Steps {
			t.Log(s.Kind, s.Name, s.Status, string(s.Output), len(s.Attempts))
		}
	}, w)
}

func TestFlowRetriesAndFails(t *testing.T) {
	var tries atomic.Int32
	w := engine.MustFlow("flaky", func(f *engine.Flow, in int) (string, error) {
		_, err := engine.Do(f, "call", func(context.Context) (int, error) {
			if tries.Add(1) < 4 {
				return 0, engine.Coded("busy", errors.New("try later"))
			}
			return 4, nil
		}, engine.Policy("fixed(1h) attempts=3"))
		var failed *engine.OpError
		if !errors.As(err, &failed) || failed.Code != "busy" || failed.Name != "call" {
			return "", fmt.Errorf("want an OpError, got %v", err)
		}
		return "", err
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(w, 1)
		if run.State != "dead" || run.Error != "operation call: try later" || tries.Load() != 3 {
			t.Errorf("%s: %q after %d tries", run.State, run.Error, tries.Load())
		}
		if waits := enginetest.Waits(run, "call"); len(waits) != 2 {
			t.Errorf("waits %v", waits)
		}
	}, w)
}
