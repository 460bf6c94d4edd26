package paxos

import (
	"flag"
	"testing"
)

var seeds = flag.Int("paxos.seeds", 100, "number of storms to run")

// TestStorms checks these invariants: no epoch has two values; a value that is reported
// as committed was decided once; a value that was certainly given up was never decided.
func TestStorms(t *testing.T) {
	committed, givenUps, epochs, lateOnes, forgotten := 0, 0, 0, 0, 0
	for seed := range uint64(*seeds) {
		w := newSimulation(seed, defect{})
		for _, problem := range w.run() {
			t.Errorf("seed %d: %s", seed, problem)
		}
		epochs += len(w.decided)
		forgotten += w.forgotten
		for _, m := range w.members {
			for seq, how := range m.ends {
				if how == "committed" {
					committed++
					continue
				}
				givenUps++
				if m.open[seq] {
					lateOnes++
				}
			}
			if len(m.Log()) != len(w.members[0].Log()) {
				t.Errorf("seed %d: members know %d and %d epochs", seed, len(w.members[0].Log()), len(m.Log()))
			}
		}
	}
	t.Logf("%d storms: %d epochs, %d of them forgotten, %d committed, %d given up, %d of them unsure", *seeds, epochs, forgotten, committed, givenUps, lateOnes)
	if forgotten < epochs/4 {
		t.Errorf("%d of %d epochs were forgotten by some acceptor, too few to tell", forgotten, epochs)
	}
	if committed < 4*givenUps || givenUps == 0 && *seeds >= 500 {
		t.Errorf("%d committed and %d given up: the storms are too strong or too weak to tell", committed, givenUps)
	}
}

// A broken state machine must not pass the storms.
func TestStormsFindWhatIsBroken(t *testing.T) {
	for _, tt := range []struct {
		name string
		defect
	}{
		{"an acceptor forgets its promise when it restarts", defect{restart: func(s Slot) Slot {
			s.Promised = s.Accepted
			return s
		}}},
		{"an acceptor forgets what it accepted when it restarts", defect{restart: func(s Slot) Slot {
			return Slot{Epoch: s.Epoch, Promised: s.Promised}
		}}},
		{"an acceptor answers before its disk has it", defect{early: true}},
		{"a quorum counts an acceptor twice", defect{hear: func(n int, m Message) []Message {
			twice := m
			twice.From = (m.From + 1) % n
			return []Message{m, twice}
		}}},
		{"a proposer ignores what was accepted before", defect{hear: func(_ int, m Message) []Message {
			if m.Kind == Promise {
				m.Prior, m.Value = Ballot{}, Value{}
			}
			return []Message{m}
		}}},
		{"a proposer takes a rejection for a promise", defect{hear: func(_ int, m Message) []Message {
			if m.Kind == Reject {
				m.Kind, m.Prior = Promise, Ballot{}
			}
			return []Message{m}
		}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const most = 20_000
			for seed := range uint64(most) {
				if problems := newSimulation(seed, tt.defect).run(); len(problems) > 0 {
					t.Logf("seed %d: %s", seed, problems[0])
					return
				}
			}
			t.Errorf("none of %d storms found it", most)
		})
	}
}
