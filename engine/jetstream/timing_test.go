package jetstream

import (
	"testing"
	"time"
)

func TestWhoEndsItsLeasesDoesSoBeforeOthersMayTakeThem(t *testing.T) {
	for lease := time.Second; lease < time.Minute; lease += 700 * time.Millisecond {
		x := timingOf(lease)
		if x.cutOff >= x.gone || x.ended >= x.expelAt {
			t.Errorf("timingOf(%v) = %+v; want cutOff < gone and ended < expelAt", lease, x)
		}
		if x.beat >= x.fresh || x.fresh >= x.gone || x.gone >= x.ended {
			t.Errorf("timingOf(%v) = %+v; want beat < fresh < gone < ended", lease, x)
		}
	}
}

func TestTheDefaultOutlivesAnElection(t *testing.T) {
	if x := timingOf(DefaultLeaseTime); x.ended < electionTime {
		t.Errorf("leases end after %v; want at least %v", x.ended, electionTime)
	}
}

func TestHeartbeatState(t *testing.T) {
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d * time.Millisecond) }
	p := heartbeatState{timing: timingOf(12 * time.Second)}
	p.arrived(at(0))
	steps := []struct {
		name  string
		do    func()
		now   time.Duration
		left  time.Duration
		fresh bool
	}{
		{"a heartbeat counts from its start", func() {}, 1000, 10_000, true},
		{"without another the silence of others means nothing", func() {}, 2000, 9000, false},
		{"without connection leases end earlier", func() { p.down = true }, 2000, 500, false},
		{"and then they have ended", func() {}, 2500, 0, false},
		{"with a connection they hold longer", func() { p.down = false }, 2500, 8500, false},
		{"the next heartbeat prolongs them", func() { p.arrived(at(3000)) }, 3500, 10_500, true},
		{"one that was overtaken changes nothing", func() { p.arrived(at(1000)) }, 3500, 10_500, true},
		{"at last they end", func() {}, 14_000, 0, false},
	}
	for _, s := range steps {
		s.do()
		if got := p.left(at(s.now)); got != s.left*time.Millisecond {
			t.Errorf("%s: left = %v; want %v", s.name, got, s.left*time.Millisecond)
		}
		if got := p.fresh(at(s.now)); got != s.fresh {
			t.Errorf("%s: fresh = %v; want %v", s.name, got, s.fresh)
		}
	}
}

func TestANewPulseHoldsNothing(t *testing.T) {
	p := heartbeatState{timing: timingOf(12 * time.Second)}
	if left := p.left(time.Now()); left > 0 {
		t.Errorf("left = %v before the first heartbeat", left)
	}
}
