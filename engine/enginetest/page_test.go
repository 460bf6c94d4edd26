package enginetest_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

// Order is the input of the workflow of docs/engine.md.
type Order struct{ ID string }

// newOrder returns a workflow whose step charge fails twice.
func newOrder(t *testing.T) *engine.Workflow {
	t.Helper()
	calls := 0
	order, err := engine.NewWorkflow("order", engine.Step("charge", func(context.Context, Order) (int, error) {
		if calls++; calls <= 2 {
			return 0, errors.New("declined")
		}
		return calls, nil
	}, engine.Policy("exponential(1s..60s) attempts=5")))
	if err != nil {
		t.Fatal(err)
	}
	return order
}

// The following two functions have the snippets of docs/engine.md.

func TestOrder(t *testing.T) {
	order := newOrder(t)
	run := enginetest.Run(t, order, Order{ID: "4711"})
	if run.State != engine.StateSucceeded {
		t.Error(run.Err())
	}
	want := []time.Duration{time.Second, 2 * time.Second} // charge fails twice
	if got := enginetest.Waits(run, "charge"); !slices.Equal(got, want) {
		t.Errorf("charge waited %v, want %v", got, want)
	}
}

// real clock: enginetest.Test runs the function in a bubble
func TestOrderAndACrash(t *testing.T) {
	order := newOrder(t)
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		started, err := e.Start(t.Context(), order, Order{ID: "4711"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // virtual
		e.Crash()               // running attempts are lost; the engine continues from its log
		run, err := e.Wait(t.Context(), started.ID)
		if err != nil {
			t.Fatal(err)
		}
		if run.State != engine.StateSucceeded {
			t.Errorf("state %s: %s", run.State, run.Error)
		}
	})
}

// Each line of Go in the section Testing of docs/engine.md is in this file, in the same order.
func TestTheSnippetsOfThePageCompile(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/engine.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("page_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Testing\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(section, -1)
	if len(blocks) != 2 {
		t.Errorf("the section has %d snippets", len(blocks))
	}
	for _, b := range blocks {
		rest := string(source)
		for line := range strings.Lines(b[1]) {
			_, after, found := strings.Cut(rest, strings.TrimSpace(line))
			if !found {
				t.Errorf("this file lacks the line %q of the page", line)
				break
			}
			rest = after
		}
	}
}
