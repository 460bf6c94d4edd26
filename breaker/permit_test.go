package breaker_test

import (
	"testing"

	"github.com/tideover/tideover/breaker"
)

func TestTheZeroPermitIgnoresReports(t *testing.T) {
	t.Parallel()
	var p breaker.Permit
	for _, r := range []breaker.Result{breaker.Success, breaker.Failure, breaker.Canceled} {
		p.Done(r)
		p.DoneAt(0, r)
	}
}

func TestAnUnknownResultIsAFailure(t *testing.T) {
	t.Parallel()
	b := breaker.Must(fragile)
	call(t, b, 0, breaker.Result(9))
	wantState(t, b, 0, breaker.Open)
}
