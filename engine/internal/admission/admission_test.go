package admission

import (
	"math/rand/v2"
	"testing"

	"github.com/tideover/tideover/engine/internal/workflow"
)

type fakeShard struct{ woken int }

func (s *fakeShard) Wake() { s.woken++ }

func noLimits(string) (l workflow.Limits) { return l }

type fakeClock int64

func (c fakeClock) Now() int64 { return int64(c) }

// Whatever happens to tickets, in any order: all places are free again in the end, and a shard that
// waited for one was woken.
func TestTicketsAreGivenBack(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		places, calls := 1+random.IntN(4), 1+random.IntN(4)
		shared := NewShared(places, calls)
		var shards [3]fakeShard
		var list [3]Admission
		for i := range list {
			list[i] = New(shared, &shards[i], noLimits, fakeClock(0))
		}
		var open []*Ticket
		refused := false
		for range 300 {
			if i := random.IntN(len(list)); random.IntN(2) == 0 {
				if ticket, ok := list[i].take(random.IntN(2) == 0); ok {
					open = append(open, &ticket)
				} else {
					refused = true
				}
			}
			if len(open) == 0 {
				continue
			}
			n := random.IntN(len(open))
			ticket := open[n]
			switch random.IntN(5) {
			case 0:
				ticket.Lend()
			case 1:
				ticket.Reclaim()
			case 2:
				if !ticket.isCall && shared.Counts().Handlers < places {
					if err := ticket.Enter(t.Context()); err != nil {
						t.Fatal(err)
					}
					ticket.Leave()
				}
			default:
				end(ticket, random.IntN(2) == 0)
				open = append(open[:n], open[n+1:]...)
			}
		}
		for _, ticket := range open {
			end(ticket, false)
		}
		if got, want := shared.Counts(), (Counts{Attempts: places, Calls: calls}); got.Attempts != want.Attempts || got.Calls != want.Calls || got.Running != 0 || got.Handlers != 0 {
			t.Fatalf("seed %d: in the end the counts are %+v, want %+v", seed, got, want)
		}
		if refused && shards[0].woken+shards[1].woken+shards[2].woken == 0 {
			t.Errorf("seed %d: a place was refused, and no shard was woken", seed)
		}
	}
}

// end ends an attempt or call in one of the ways in which it may end, twice.
func end(t *Ticket, quick bool) {
	for range 2 {
		switch {
		case t.isCall:
			t.Lend()
		case t.lent:
			t.Drop()
		default:
			t.Give(quick)
		}
	}
}

// A suspect that has to run alone begins when nothing else runs, and nothing begins beside it.
func TestNothingBeginsBesideASuspectThatRunsAlone(t *testing.T) {
	t.Parallel()
	shared := NewShared(4, 4)
	var one, two fakeShard
	a, b := New(shared, &one, noLimits, fakeClock(0)), New(shared, &two, noLimits, fakeClock(0))
	ticket, _ := b.take(false)
	if !shared.quarantine.isolate(&one) {
		t.Fatal("the suspect must wait for no other one")
	}
	if _, ok := b.take(false); ok || !b.IsHeld() {
		t.Error("another attempt begins, and does not wait for the suspect")
	}
	if _, ok := b.take(true); ok {
		t.Error("a function is called, and does not wait for the suspect")
	}
	if trial, _ := shared.quarantine.tryAlone(&one, false); trial != nil {
		t.Error("the suspect begins beside another attempt")
	}
	ticket.Give(false)
	if one.woken == 0 {
		t.Error("the shard of the suspect is not woken when nothing runs")
	}
	trial, alone := shared.quarantine.tryAlone(&one, false)
	if trial == nil || !alone {
		t.Fatal("the suspect does not begin, although nothing else runs")
	}
	suspect := Ticket{shared: shared, trial: trial}
	shared.attempts.reclaim()
	suspect.Give(false)
	b.Restart()
	if _, ok := b.take(false); !ok {
		t.Error("no other attempt begins after the suspect")
	}
	a.Leave()
}
