package contend_test

import (
	"container/heap"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tideover/tideover/contend"
	"github.com/tideover/tideover/internal/paxos"
	"github.com/tideover/tideover/retry"
)

// meeting is a group whose devices all propose at once, in virtual time, to
// five acceptors that are one hop away. Every wait is computed by
// [retry.Decide], with the policy for the pace that the device has measured.
type meeting struct {
	config    contend.Config
	hop       time.Duration
	r         *rand.Rand
	now       time.Duration
	events    queue
	out       paxos.Output
	devices   []*device
	acceptors []*paxos.Acceptor
	committed int
	made      int // events
}

type device struct {
	*paxos.Proposer
	pace  contend.Pace
	state retry.State
	start time.Duration // of the attempt
}

// allCommit reports whether every device commits its update.
func allCommit(c contend.Config, hop time.Duration, devices int, seed uint64) bool {
	const acceptors = 5
	m := &meeting{config: c, hop: hop, r: rand.New(rand.NewPCG(seed, uint64(devices)))}
	for i := range acceptors {
		m.acceptors = append(m.acceptors, paxos.NewAcceptor(i))
	}
	for i := range devices {
		p, _ := paxos.NewProposer(i, acceptors)
		d := &device{Proposer: p}
		m.devices = append(m.devices, d)
		m.drive(d, func() { d.Propose(1, "", &m.out) })
	}
	for len(m.events) > 0 {
		e := heap.Pop(&m.events).(due)
		m.now = e.at
		e.do()
	}
	return m.committed == devices
}

func (m *meeting) drive(d *device, step func()) {
	m.out.Reset()
	step()
	m.send()
	for _, e := range m.out.Events {
		switch e.Kind {
		case paxos.Committed:
			m.committed++
		case paxos.Lost:
			m.lost(d)
		case paxos.Learned, paxos.Forgotten: // the proposer rebases, and this test forgets nothing
		}
	}
}

func (m *meeting) lost(d *device) {
	d.pace.Observe(m.now - d.start)
	d.state.Attempt++
	d.state.Elapsed = m.now
	next := retry.Decide(m.config.For(d.pace.Attempt()), d.state, retry.Outcome{}, retry.Gates{}, m.r.Uint64())
	if next.Stop != 0 {
		d.Abandon()
		return
	}
	m.after(next.Wait, func() {
		d.start = m.now
		m.drive(d, func() { d.Again("", &m.out) })
	})
}

// send sends all messages.
func (m *meeting) send() {
	for _, msg := range m.out.Send {
		m.after(max(time.Duration(float64(m.hop)*(1+0.2*m.r.NormFloat64())), 1), func() {
			if !msg.Kind.ToAcceptor() {
				m.drive(m.devices[msg.To], func() { m.devices[msg.To].Receive(msg, &m.out) })
				return
			}
			m.out.Reset()
			a := m.acceptors[msg.To]
			a.Receive(msg, &m.out)
			a.Persisted(len(m.out.Persist), &m.out)
			m.send()
		})
	}
}

func (m *meeting) after(wait time.Duration, do func()) {
	m.made++
	heap.Push(&m.events, due{m.now + wait, m.made, do})
}

// due is a scheduled function; functions of the same time run in the order in
// which they were scheduled.
type due struct {
	at time.Duration
	n  int
	do func()
}

type queue []due

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(due)) }
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

var groups = flag.Int("contend.groups", 20, "number of groups to simulate for each case")

// share returns the percentage of the groups in which every device commits.
func share(c contend.Config, hop time.Duration, devices int) int {
	n := 0
	for seed := range uint64(*groups) {
		if allCommit(c, hop, devices, seed) {
			n++
		}
	}
	return 100 * n / *groups
}

func TestScaleReachesDevicesThatAreFarAway(t *testing.T) {
	p := parse(t, "contention")
	fixed, scaled := contend.Config{Policy: p}, contend.Config{Policy: p, Scale: 1.5}
	for _, tt := range []struct {
		hop         time.Duration
		devices     int
		most, least int // per cent, of the fixed base and of the scaled one
	}{
		{time.Millisecond, 10, 100, 95}, // where there is nothing to gain, nothing is lost
		{10 * time.Millisecond, 10, 40, 95},
		{50 * time.Millisecond, 7, 10, 95},
		{50 * time.Millisecond, 10, 5, 95},
	} {
		before, after := share(fixed, tt.hop, tt.devices), share(scaled, tt.hop, tt.devices)
		t.Logf("%d devices at %v: all commit in %d %% of the groups with a fixed base, in %d %% with a scaled one", tt.devices, tt.hop, before, after)
		if before > tt.most || after < tt.least {
			t.Errorf("%d devices at %v: %d and %d, want at most %d and at least %d", tt.devices, tt.hop, before, after, tt.most, tt.least)
		}
		if got := share(contend.Config{}, tt.hop, tt.devices); got != 100 {
			t.Errorf("%d devices at %v: all commit in %d %% of the groups with the default, want 100 %%", tt.devices, tt.hop, got)
		}
	}
}
