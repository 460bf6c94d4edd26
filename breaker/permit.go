package breaker

import (
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// Permit is the permission to make one call. Its holder must report the result
// once, with Done or DoneAt. A second report of a probe is ignored; a second
// report of any other call counts again, because a permit is a plain value
// without state. The zero Permit ignores reports.
//
// A permit that is never reported does not count. If it is for a probe, no other
// probe takes its place until Config.ProbeTimeout.
type Permit struct {
	breaker *Breaker
	window  *window       // nil for a probe
	probe   uint64        // id of the probe
	start   time.Duration // 0 unless Config.SlowCall is set
}

// Done reports the result of the call.
func (p Permit) Done(r Result) {
	if r == Success && p.window != nil && !p.breaker.clockOnDone {
		p.window.n.Add(1)
		return
	}
	p.doneNow(r)
}

// doneNow is the part of Done that reads the clock. It is a separate function so
// that Done can be inlined.
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
	case bad == badness{} && p.window.addSuccess(now):
	default:
		p.breaker.report(p.window, now, bad)
	}
}
