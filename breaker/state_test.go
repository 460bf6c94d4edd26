package breaker_test

import (
	"testing"

	"github.com/tideover/tideover/breaker"
)

func TestNamesOfStatesAndResults(t *testing.T) {
	t.Parallel()
	tests := map[interface{ String() string }]string{
		breaker.Closed: "closed", breaker.HalfOpen: "half-open", breaker.Open: "open",
		breaker.ForcedOpen: "forced-open", breaker.ForcedClosed: "forced-closed", breaker.State(9): "state(9)",
		breaker.Success: "success", breaker.Failure: "failure", breaker.Canceled: "canceled", breaker.Result(9): "result(9)",
	}
	for v, want := range tests {
		if got := v.String(); got != want {
			t.Errorf("%T(%d).String() = %q, want %q", v, v, got, want)
		}
	}
}
