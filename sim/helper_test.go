package sim

import (
	"flag"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/tideover/tideover/retry"
)

const (
	ms     = time.Millisecond
	second = time.Second
)

// The anchors are published or independently measured results that the
// simulator must reproduce. With -anchors they run at full size.
var full = flag.Bool("anchors", false, "run the anchors at full size")

// size returns the argument large with -anchors, else small.
func size(small, large int) int {
	if *full {
		return large
	}
	return small
}

// rows are the measured values of the anchors.
var rows []measured

type measured struct {
	what string
	got  Estimate
	want float64
}

func name(what string, n int) string { return fmt.Sprintf("%s=%d", what, n) }

func policy(t testing.TB, text string) retry.Policy {
	t.Helper()
	p, err := retry.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// contestant returns a contestant that has its policy as its name.
func contestant(t testing.TB, text string) Contestant {
	t.Helper()
	return Contestant{Name: text, Policy: policy(t, text)}
}

func run(t testing.TB, s Scenario, seeds int, cs ...Contestant) []Result {
	t.Helper()
	r, err := Run(t.Context(), s, cs, Options{Seed: 1, Seeds: seeds})
	if err != nil {
		t.Fatal(err)
	}
	return r.Results
}

// queueing is a service with a queue.
func queueing(workers int, mean time.Duration) Service {
	return Service{Name: "service", Workers: workers, Latency: Latency{Distribution: Exponential, Mean: mean}}
}

// wantNear fails the test if a measure differs from want by more than the
// tolerance, which is a share of want.
func wantNear(t testing.TB, what string, got Estimate, want, tolerance float64) {
	t.Helper()
	rows = append(rows, measured{what, got, want})
	off := math.Abs(got.Mean - want)
	t.Logf("%s: %.4g ± %.2g, want %.4g within %.1f %%", what, got.Mean, got.Half, want, 100*tolerance)
	if got.N == 0 || off > math.Abs(want)*tolerance {
		t.Errorf("%s: got %.5g ± %.2g over %d seeds, want %.5g within %.1f %%", what, got.Mean, got.Half, got.N, want, 100*tolerance)
	}
}
