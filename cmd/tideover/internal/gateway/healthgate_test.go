package gateway

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/health"
)

func newTestDoor(t *testing.T) *healthGate {
	t.Helper()
	s := spec(t, "it", Generic, nobody)
	d, err := newHealthGate(&s, "it", new(health.Recovery), new(history), new(subscribers), func(breaker.Event, health.GateStats) {})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A caller that does not want to wait is never made to, whatever happens to the gate
// at the same moment.
func TestNobodyWaitsWhoOnlyTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDoor(t)
		var over atomic.Bool
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for !over.Load() {
					pass, found, _ := d.try(context.Background())
					if found == gateOpen {
						pass.Done(health.Canceled)
					}
				}
			})
		}
		for range 200 {
			d.shut("test")
			if found, next := d.state(); found != gateClosed || next <= 0 {
				t.Errorf("a gate that was shut is %v for %v", found, next)
			}
			d.gate.Open()
			d.reopened()
		}
		over.Store(true)
		callers.Wait()
		if n := d.gate.Stats().Waiting; n != 0 {
			t.Errorf("%d wait", n)
		}
	})
}

// One who tries when a probe is due is the prober, and the only one.
func TestTheProbeIsForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDoor(t)
		if pass, found, _ := d.try(context.Background()); found != gateOpen || pass.Probe() {
			t.Fatalf("an open gate: %v", found)
		}
		d.shut("test")
		eventually(t, "a probe is due", func() bool { found, _ := d.state(); return found == gateOpen })
		pass, found, _ := d.try(context.Background())
		if found != gateOpen || !pass.Probe() {
			t.Fatalf("when a probe is due: %v, probe %v", found, pass.Probe())
		}
		if _, found, _ := d.try(context.Background()); found != gateClosed {
			t.Errorf("while one probes the next finds %v", found)
		}
		pass.Done(health.Succeeded)
		if _, was := d.reopened(); !was {
			t.Error("the outage did not end")
		}
		if pass, found, _ := d.try(context.Background()); found == gateClosed || pass.Probe() {
			t.Errorf("after the probe: %v", found)
		}
	})
}
