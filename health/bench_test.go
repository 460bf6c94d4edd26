package health

import (
	"fmt"
	"testing"
	"time"
)

func BenchmarkScore(b *testing.B) {
	b.ReportAllocs()
	var s Score
	now := time.Duration(0)
	for b.Loop() {
		now += ms
		s.ObserveAt(now, 100*ms)
	}
}

func BenchmarkPoolPickAndDone(b *testing.B) {
	for _, n := range []int{2, 8, 64} {
		p := newPool(b, PoolConfig{}, benchTargets(n))
		b.Run(fmt.Sprintf("targets=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			now, u := time.Duration(0), uint64(0)
			for b.Loop() {
				now += ms
				u += 0x9e3779b97f4a7c15
				c := p.PickAt(now, u)
				c.DoneAt(now+100*ms, u, Succeeded)
			}
		})
		b.Run(fmt.Sprintf("targets=%d/with clock", n), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					c := p.Pick()
					c.Done(Succeeded)
				}
			})
		})
	}
}

func benchTargets(n int) (list []Target) {
	for i := range n {
		list = append(list, Target{Name: fmt.Sprint(i)})
	}
	return list
}

func BenchmarkOpenGate(b *testing.B) {
	b.ReportAllocs()
	g, ctx := newGate(b, GateConfig{}), b.Context()
	for b.Loop() {
		p, err := g.Enter(ctx)
		if err != nil {
			b.Fatal(err)
		}
		p.Done(Succeeded)
	}
}

func BenchmarkRecovery(b *testing.B) {
	r := new(Recovery)
	for range 50 {
		r.Observe(50*sec, 60*sec)
	}
	b.Run("Gap", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.Gap(30 * sec)
		}
	})
	b.Run("Observe", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.Observe(50*sec, 60*sec)
		}
	})
}

func BenchmarkErrorRate(b *testing.B) {
	b.ReportAllocs()
	var e ErrorRate
	now := time.Duration(0)
	for b.Loop() {
		now += ms
		e.AddAt(now, true)
	}
}

func BenchmarkSendRate(b *testing.B) {
	b.ReportAllocs()
	r, now := newSendRate(b, SendRateConfig{}), sec
	r.ReportAt(now, true)
	for b.Loop() {
		now += ms
		r.ReserveAt(now)
		r.ReportAt(now, false)
	}
}
