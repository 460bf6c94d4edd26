package breaker_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/tideover/tideover/breaker"
)

func TestOpenErrorSaysWhatToWaitFor(t *testing.T) {
	t.Parallel()
	tests := []struct {
		err  breaker.OpenError
		want string
	}{
		{breaker.OpenError{Name: "payments", State: breaker.Open, For: 4213 * time.Millisecond}, `breaker "payments" is open for another 4.2s`},
		{breaker.OpenError{State: breaker.Open, For: 1499 * time.Microsecond}, `breaker is open for another 1ms`},
		{breaker.OpenError{State: breaker.Open, For: 70}, `breaker is open for another 70ns`},
		{breaker.OpenError{Name: "a", State: breaker.ForcedOpen, For: math.MaxInt64}, `breaker "a" is forced open until it is reset`},
		{breaker.OpenError{State: breaker.HalfOpen, For: 30 * sec}, `breaker is half-open and waits for its probes, for another 30s at most`},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%#v.Error()\n got %s\nwant %s", tt.err, got, tt.want)
		}
		if !errors.Is(&tt.err, breaker.ErrOpen) {
			t.Errorf("%v: errors.Is(err, ErrOpen) = false, want true", &tt.err)
		}
	}
}
