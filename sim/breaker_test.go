//go:build !race

package sim

import (
	"math"
	"testing"

	"github.com/tideover/tideover/breaker"
)

// TestTheDefaultBreaker measures the numbers in the comment of breaker.Default.
func TestTheDefaultBreaker(t *testing.T) {
	s := Scenario{
		Name: "partial failure", Duration: 120 * second, Drain: 60 * second, Bucket: second,
		Clients:  Clients{Count: 1000, Arrivals: Open, Rate: 200, Sharing: 50},
		Services: []Service{queueing(30, 100*ms)},
		Failures: []Failure{{Kind: Capacity, From: 20 * second, Until: 50 * second, Share: 0.3}},
	}
	budget := contestant(t, "default attempt-timeout=1s")
	guarded := budget
	guarded.Name, guarded.Breaker = "with a breaker", new(breaker.Default())
	neither := contestant(t, "exponential(50ms..20s) jitter=full attempts=3 attempt-timeout=1s")
	r := run(t, s, size(5, 20), budget, guarded, neither)
	if math.Abs(r[0].Recovery.Mean-33) > 3 || math.Abs(r[1].Recovery.Mean-18) > 3 || r[2].NeverRecovers != 1 {
		t.Errorf("recovery after %v s with a budget, %v s with a breaker too, never in %v of the runs without both; want 33, 18 and 1",
			r[0].Recovery, r[1].Recovery, r[2].NeverRecovers)
	}
}
