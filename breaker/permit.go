package breaker

import (
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// Permit is the leave to make one call. Its holder reports the result once, with
// Done or DoneAt. A probe's second report counts nothing; that of any other
// call counts again, because a permit is a plain value that costs nothing and
// remembers nothing. The zero Permit ignores reports.
//
// A permit that is never reported counts nothing; if it is a probe's, it holds
// up other probes until Config.ProbeTimeout.
type Permit struct {
	breaker *Breaker
	window  *window       // nil for a probe
	probe   uint64        // id of the probe
	start   time.Duration // 0 unless it is needed
}

// Done reports the result of the call.
func (p Permit) Done(r Result) {
	if r == Success && p.window != nil && !p.breaker.timeEnd {
		p.window.n.Add(1)
		return
	}
	p.doneNow(r)
}

func (p Permit) doneNow(r Result) {
	if p.window != nil && r == Canceled {
		return
	}
	p.DoneAt(clock.Now(), r)
}

// DoneAt is [Permit.Done] at the time now, for a permit from [Breaker.AllowAt].
func (p Permit) DoneAt(now time.Duration, r Result) {
	if p.breaker == nil {
		return
	}
	slow := p.breaker.config.SlowCall
	bad := badness{failed: r != Success, slow: slow > 0 && now-p.start >= slow}
	switch {
	case p.window == nil:
		p.breaker.reportProbe(p.probe, now, r, bad)
	case r == Canceled:
	case bad == badness{} && p.window.succeed(now):
	default:
		p.breaker.report(p.window, now, bad)
	}
}
