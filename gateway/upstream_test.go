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

func newTestGate(t *testing.T) *healthGate {
	t.Helper()
	s := spec(t, "it", Generic, unreachableURL)
	g, err := newHealthGate(&s, "it", &upstreamState{recovery: new(health.Recovery)}, func(breaker.Event, health.GateStats) {})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// try never waits, even if the gate changes at the same moment.
func TestTryNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGate(t)
		var over atomic.Bool
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for !over.Load() {
					pass, found, _ := g.try(context.Background())
					if found == gateOpen {
						pass.Done(health.Canceled)
					}
				}
			})
		}
		for range 200 {
			g.shut("test")
			if found, next := g.state(); found != gateClosed || next <= 0 {
				t.Errorf("a gate that was shut is %v for %v", found, next)
			}
			g.gate.Open()
			g.reopened()
		}
		over.Store(true)
		callers.Wait()
		if n := g.gate.Stats().Waiting; n != 0 {
			t.Errorf("%d wait", n)
		}
	})
}

// If a probe is due, the first request that tries is the probe, and the only one.
func TestTheProbeIsForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGate(t)
		if pass, found, _ := g.try(context.Background()); found != gateOpen || pass.Probe() {
			t.Fatalf("an open gate: %v", found)
		}
		g.shut("test")
		eventually(t, "a probe is due", func() bool { found, _ := g.state(); return found == gateOpen })
		pass, found, _ := g.try(context.Background())
		if found != gateOpen || !pass.Probe() {
			t.Fatalf("when a probe is due: %v, probe %v", found, pass.Probe())
		}
		if _, found, _ := g.try(context.Background()); found != gateClosed {
			t.Errorf("while one probes the next finds %v", found)
		}
		pass.Done(health.Succeeded)
		if _, was := g.reopened(); !was {
			t.Error("the outage did not end")
		}
		if pass, found, _ := g.try(context.Background()); found == gateClosed || pass.Probe() {
			t.Errorf("after the probe: %v", found)
		}
	})
}
