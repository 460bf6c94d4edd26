package sim

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQueueYieldsInOrderOfTimeThenOfAdding compares the queue with a stable
// sort, while events are added between those that are removed.
func TestQueueYieldsInOrderOfTimeThenOfAdding(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var q queue
		var want, got []event
		n := uint32(0)
		add := func() {
			q.add(r.Int64N(1<<r.Int64N(30)), 3, n, n)
			n++
		}
		for range 500 {
			add()
		}
		for q.pending > 0 {
			e, ok := q.next()
			if !ok || e.at != q.now {
				t.Fatalf("next = %v, %v at %d", e, ok, q.now)
			}
			got = append(got, e)
			if n < 3000 && r.IntN(3) > 0 {
				add()
				add()
			}
		}
		if _, ok := q.next(); ok {
			t.Fatal("an empty queue yields")
		}
		want = slices.Clone(got)
		slices.SortFunc(want, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.who, b.who)) })
		if !slices.Equal(got, want) || len(got) != int(n) {
			t.Fatalf("seed %d: %d of %d events, or not in order", seed, len(got), n)
		}
	}
}

func TestEventKeepsItsKindAndGeneration(t *testing.T) {
	var q queue
	q.add(0, 255, 7, generations+3)
	e, _ := q.next()
	if e.kind() != 255 || e.generation() != 2 || e.who != 7 {
		t.Errorf("got kind %d, generation %d, who %d", e.kind(), e.generation(), e.who)
	}
}

// hold runs the hold model, the classic test of event queues: each event that
// is removed adds a new one.
type hold struct {
	q queue
	n uint64
}

func (h *hold) handle(e event) {
	h.n++
	h.q.add(int64(exponential(scramble(h.n*golden))*1e6), 1, e.who, 0)
}

func (*hold) checkMemory(context.Context) error { return nil }

func TestPlayStopsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	h := &hold{}
	h.q.add(0, 1, 0, 0)
	if n, err := runModel(ctx, &h.q, h, 1<<62); n != 0 || !errors.Is(err, why) {
		t.Errorf("play = %d, %v", n, err)
	}
}

// BenchmarkEvents measures the queue and a random number alone.
func BenchmarkEvents(b *testing.B) {
	for _, pending := range []int{100, 10_000, 1_000_000} {
		b.Run(name("pending", pending), func(b *testing.B) {
			h := &hold{}
			for i := range pending {
				h.handle(event{who: uint32(i)})
			}
			b.ResetTimer()
			before := cpu()
			for range b.N {
				e, _ := h.q.next()
				h.handle(e)
			}
			b.ReportMetric(float64(b.N)/(cpu()-before).Seconds()/1e6, "Mevents/cpu-s")
		})
	}
}
