package prom_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/prom"
	"github.com/tideover/tideover/retry"
)

func fails(n int) func(context.Context) error {
	return func(context.Context) error {
		if n--; n >= 0 {
			return errors.New("no")
		}
		return nil
	}
}

const want = `# HELP tideover_attempt_failures_total Attempts that failed.
# TYPE tideover_attempt_failures_total counter
tideover_attempt_failures_total{layer="call",name="api"} 5
# HELP tideover_attempts_total Attempts that were started.
# TYPE tideover_attempts_total counter
tideover_attempts_total{layer="call",name="api"} 7
# HELP tideover_breaker_state 1 for the state that the breaker is in.
# TYPE tideover_breaker_state gauge
tideover_breaker_state{name="b",state="closed"} 0
tideover_breaker_state{name="b",state="forced-closed"} 0
tideover_breaker_state{name="b",state="forced-open"} 1
tideover_breaker_state{name="b",state="half-open"} 0
tideover_breaker_state{name="b",state="open"} 0
# HELP tideover_budget_tokens What is left of a budget for retries.
# TYPE tideover_budget_tokens gauge
tideover_budget_tokens{name="shared"} 500
# HELP tideover_first_attempts_total Attempts that were started, without retries.
# TYPE tideover_first_attempts_total counter
tideover_first_attempts_total{layer="call",name="api"} 3
# HELP tideover_giveups_total Calls that gave up, by reason.
# TYPE tideover_giveups_total counter
tideover_giveups_total{layer="call",name="api",reason="attempts"} 1
# HELP tideover_retries_total Waits before another attempt, by who set them.
# TYPE tideover_retries_total counter
tideover_retries_total{by="policy",layer="call",name="api"} 4
`

func TestCallsAreCounted(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	m := prom.Must(reg)
	r := retry.Must("fixed(0s) attempts=3", retry.WithName("api"), m.Observe())
	for _, n := range []int{0, 2, 3} {
		_ = r.Do(t.Context(), fails(n))
	}
	b := breaker.Must(breaker.Config{}, breaker.WithName("b"))
	m.Breaker(b)
	if err := b.Force(breaker.ForcedOpen); err != nil {
		t.Fatal(err)
	}
	budget, err := limit.NewBudget(limit.Refund(5, 1, 500))
	if err != nil {
		t.Fatal(err)
	}
	m.Budget("shared", budget)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names(want)...); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(reg, "tideover_wait_seconds"); n != 1 {
		t.Errorf("%d kinds of waits", n)
	}
}

// names returns the names of the metrics in a text.
func names(text string) (list []string) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); f[1] == "TYPE" {
			list = append(list, f[2])
		}
	}
	return list
}

// TestTheNamesAreThoseOfTheCommand compares the names with the page that
// documents them for the library and the command.
func TestTheNamesAreThoseOfTheCommand(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names(want), "tideover_wait_seconds") {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/metrics.md has no %s", name)
		}
	}
}

func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := prom.Must(reg)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range prom.MaxNames {
				m.Event(retry.Event{Kind: retry.AttemptStarted, Name: fmt.Sprint(i, "-", j), Attempt: 1})
			}
		})
	}
	all.Wait()
	if n := testutil.CollectAndCount(reg, "tideover_attempts_total"); n != prom.MaxNames+1 {
		t.Errorf("%d names", n)
	}
}

func TestOneOfThemInARegistry(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	prom.Must(reg)
	if _, err := prom.New(reg); err == nil || !strings.HasPrefix(err.Error(), "prom.New: ") {
		t.Errorf("a second one: %v", err)
	}
	if _, err := prom.New(nil); err == nil {
		t.Error("no registry is no error")
	}
}
