package paxos

import (
	"container/heap"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strconv"
)

// simulation runs members and acceptors in virtual time, over a network that
// loses, delays, repeats and reorders messages, with acceptors that crash. It
// sees every disk and so knows what was decided.
type simulation struct {
	r      *rand.Rand
	broken defect
	now    int
	n      int // events made
	events eventHeap
	calm   bool // no more failures are injected
	loss   float64
	repeat float64
	frail  float64 // share of the writes after which an acceptor crashes
	slow   int     // longest delay of a message
	sync   int     // longest write of a disk
	out    Output

	members   []*member
	acceptors []*acceptor
	votes     map[Ballot]*vote
	decided   map[int]Value
	forgotten int // the highest epoch that an acceptor has forgotten
	wrong     []string
}

// vote has the acceptors whose disk has, or had, a value that was accepted under a
// ballot.
type vote struct {
	value Value
	by    voters
}

// defect injects the behaviour of a broken state machine.
type defect struct {
	restart func(Slot) Slot                  // changes what an acceptor finds on its disk
	early   bool                             // an acceptor answers before its disk has it
	hear    func(n int, m Message) []Message // replaces a message to a member
}

type member struct {
	*Proposer
	id      int
	away    bool
	left    int // proposals to make
	seq     int
	tries   int
	timer   int // number of the attempt that a timeout is for
	ends    map[int]string
	commits map[int]int // by proposal, the epoch
	open    map[int]bool
}

type acceptor struct {
	*Acceptor
	life int // counts the crashes
	busy int // time until which its disk is busy
	disk map[int]Slot
	cut  int // up to this epoch the disk only has the information that it was decided
}

const (
	maxTries       = 7
	attemptTimeout = 400
	givenUp        = "max proposal retries exceeded"
)

func newSimulation(seed uint64, b defect) *simulation {
	r := rand.New(rand.NewPCG(seed, 7))
	w := &simulation{r: r, broken: b, votes: map[Ballot]*vote{}, decided: map[int]Value{}}
	w.loss, w.repeat, w.slow = 0.25*r.Float64(), 0.25*r.Float64(), 1+r.IntN(40)
	w.frail = 0.1 * r.Float64()
	w.sync = 1 + r.IntN(2)*r.IntN(60)
	n := 3 + r.IntN(3)
	for i := range n {
		w.acceptors = append(w.acceptors, &acceptor{Acceptor: NewAcceptor(i), disk: map[int]Slot{}})
	}
	for i := range 2 + r.IntN(5) {
		p, _ := NewProposer(i, n)
		m := &member{Proposer: p, id: i, left: 1 + r.IntN(2), ends: map[int]string{}, commits: map[int]int{}, open: map[int]bool{}}
		w.members = append(w.members, m)
		w.after(r.IntN(30), func() { w.propose(m) })
	}
	for range r.IntN(12) {
		a := w.acceptors[r.IntN(n)]
		w.after(r.IntN(800), func() { w.crash(a) })
	}
	for f, i := rand.New(rand.NewPCG(seed, 8)), 0; i < 40; i++ {
		a := w.acceptors[f.IntN(n)]
		w.after(f.IntN(3000), func() { w.forget(a) })
	}
	for range r.IntN(3) {
		m := w.members[r.IntN(len(w.members))]
		w.after(r.IntN(500), func() { m.away = true })
		w.after(500+r.IntN(500), func() { m.away = false })
	}
	return w
}

// run runs the simulation, and then checks how it ended.
func (w *simulation) run() []string {
	w.drain(200_000)
	w.calm = true
	for range 10 { // members that missed something catch up
		for _, m := range w.members {
			m.away = false
			w.do(m, func() {
				for a := range w.acceptors {
					m.Learn(a, &w.out)
				}
			})
		}
		w.drain(200_000)
	}
	w.checkEnd()
	return w.wrong
}

func (w *simulation) drain(limit int) {
	for i := 0; len(w.events) > 0 && len(w.wrong) == 0; i++ {
		if i == limit {
			w.fail("it does not end")
			return
		}
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
}

func (w *simulation) fail(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// do calls a member, and handles its output.
func (w *simulation) do(m *member, drive func()) {
	w.out.Reset()
	drive()
	for _, msg := range w.out.Send {
		w.send(msg, m.away)
	}
	for _, e := range w.out.Events {
		w.handleEvent(m, e)
	}
}

func (w *simulation) propose(m *member) {
	m.left--
	m.seq++
	m.tries = 0
	w.attempt(m, func() { m.Propose(m.seq, strconv.Itoa(m.Epoch()), &w.out) })
}

func (w *simulation) attempt(m *member, start func()) {
	m.tries++
	m.timer++
	mine := m.timer
	w.do(m, start)
	w.after(attemptTimeout, func() {
		if m.timer == mine {
			w.do(m, func() { m.Timeout(&w.out) })
		}
	})
}

func (w *simulation) handleEvent(m *member, e Event) {
	switch e.Kind {
	case Learned:
		w.decide(e.Epoch, e.Value, "member learned")
	case Committed:
		if got := m.Log()[e.Epoch-1].Value; got.Member != m.id || got.Seq != m.seq {
			w.fail("member %d: committed %d, and the log has %v in epoch %d", m.id, m.seq, got, e.Epoch)
		}
		if _, ok := w.decided[e.Epoch]; !ok {
			w.fail("member %d: committed in epoch %d, which no quorum has accepted", m.id, e.Epoch)
		}
		m.timer++
		m.commits[m.seq] = e.Epoch
		w.finish(m, "committed")
	case Forgotten:
		w.fail("member %d: epoch %d was forgotten before it knew it", m.id, e.Epoch)
	case Lost:
		m.timer++
		if m.tries == maxTries {
			m.open[m.seq] = m.Open()
			m.Abandon()
			w.finish(m, givenUp)
			return
		}
		seq, wait := m.seq, 10<<m.tries
		w.after(wait+w.r.IntN(wait/2), func() {
			if m.Wants() && m.seq == seq {
				w.attempt(m, func() { m.Again(strconv.Itoa(m.Epoch()), &w.out) })
			}
		})
	}
}

func (w *simulation) finish(m *member, how string) {
	m.ends[m.seq] = how
	if m.left > 0 {
		w.after(w.r.IntN(100), func() { w.propose(m) })
	}
}

// send sends a message over the network.
func (w *simulation) send(m Message, cut bool) {
	copies := 1
	if !w.calm {
		if cut || w.r.Float64() < w.loss {
			return
		}
		if w.r.Float64() < w.repeat {
			copies++
		}
	}
	for range copies {
		way := 1 + w.r.IntN(w.slow)
		if w.r.IntN(10) == 0 {
			way *= 5
		}
		w.after(way, func() { w.deliver(m) })
	}
}

func (w *simulation) deliver(m Message) {
	if m.Kind.ToAcceptor() {
		a := w.acceptors[m.To]
		if from := w.members[m.From]; a.Acceptor == nil && w.r.IntN(2) == 0 { // refused, and not just lost
			w.after(1, func() { w.do(from, func() { from.Unreachable(m.To, &w.out) }) })
		}
		w.receive(a, func(a *acceptor) { a.Receive(m, &w.out) })
		return
	}
	to := w.members[m.To]
	if to.away {
		return
	}
	heard := []Message{m}
	if w.broken.hear != nil {
		heard = w.broken.hear(len(w.acceptors), m)
	}
	for _, m := range heard {
		w.do(to, func() { to.Receive(m, &w.out) })
	}
}

// receive calls an acceptor. Its disk takes time.
func (w *simulation) receive(a *acceptor, drive func(*acceptor)) {
	if a.Acceptor == nil { // it is down
		return
	}
	w.out.Reset()
	drive(a)
	life, writes := a.life, append([]Slot(nil), w.out.Persist...)
	if len(writes) > 0 && w.broken.early {
		a.Persisted(len(writes), &w.out)
	}
	for _, m := range w.out.Send {
		w.send(m, false)
	}
	for _, s := range writes {
		a.busy = max(a.busy, w.now) + 1 + w.r.IntN(w.sync)
		w.after(a.busy-w.now, func() { w.written(a, life, s) })
	}
}

// written completes a write to the disk, unless the acceptor has crashed
// before.
func (w *simulation) written(a *acceptor, life int, s Slot) {
	if a.life != life {
		return
	}
	w.store(a, s)
	if !w.broken.early {
		w.receive(a, func(a *acceptor) { a.Persisted(1, &w.out) })
	}
	if !w.calm && w.r.Float64() < w.frail { // right after its answer
		w.crash(a)
	}
}

// store stores a slot on the disk, and counts the vote.
func (w *simulation) store(a *acceptor, s Slot) {
	if s.Epoch > a.cut {
		a.disk[s.Epoch] = s
	}
	switch {
	case s.Chosen:
		w.decide(s.Epoch, s.Value, "acceptor learned")
	case s.Accepted != Ballot{}:
		w.count(a.id, s)
	}
}

func (w *simulation) count(id int, s Slot) {
	v := w.votes[s.Accepted]
	if v == nil {
		v = &vote{value: s.Value}
		w.votes[s.Accepted] = v
	}
	if v.value != s.Value {
		w.fail("two values under %v", s.Accepted)
	}
	if v.by = v.by.with(id); bits.OnesCount64(uint64(v.by)) >= Quorum(len(w.acceptors)) {
		w.decide(s.Epoch, s.Value, "quorum accepted")
	}
}

// decide detects two values for an epoch.
func (w *simulation) decide(epoch int, v Value, who string) {
	if old, ok := w.decided[epoch]; ok && old != v {
		w.fail("epoch %d: %s %v, and it was %v", epoch, who, v, old)
	}
	w.decided[epoch] = v
}

// crash stops an acceptor, with its pending writes, and restarts it after a
// while.
func (w *simulation) crash(a *acceptor) {
	if a.Acceptor == nil {
		return
	}
	id := a.id
	a.Acceptor = nil
	a.life++
	a.busy = 0
	w.after(1+w.r.IntN(1+w.r.IntN(300)), func() {
		var slots []Slot
		for epoch := 1; epoch < 1000; epoch++ {
			if s, ok := a.disk[epoch]; ok {
				if w.broken.restart != nil {
					s = w.broken.restart(s)
				}
				slots = append(slots, s)
			}
		}
		a.Acceptor = NewAcceptor(id, slots...)
	})
}

// forget makes an acceptor forget what every member knows, on its disk too.
func (w *simulation) forget(a *acceptor) {
	if a.Acceptor == nil {
		return
	}
	known := len(w.members[0].Log())
	for _, m := range w.members {
		known = min(known, len(m.Log()))
	}
	a.Forget(known)
	if a.floor == 0 {
		return
	}
	a.cut, w.forgotten = a.floor, max(w.forgotten, a.floor)
	for epoch := range a.disk {
		if epoch <= a.floor {
			delete(a.disk, epoch)
		}
	}
	a.disk[a.floor] = Slot{Epoch: a.floor, Chosen: true}
}

// checkEnd compares what each member learned with what was decided.
func (w *simulation) checkEnd() {
	where := map[Value]int{}
	for epoch := 1; epoch <= len(w.decided); epoch++ {
		v, ok := w.decided[epoch]
		if !ok {
			w.fail("epoch %d is missing", epoch)
		}
		if v.Data != strconv.Itoa(epoch) {
			w.fail("%v is in epoch %d, and was made for another", v, epoch)
		}
		v.Data = "" // compare only whose value it is
		if old, twice := where[v]; twice {
			w.fail("%v is in epochs %d and %d", v, old, epoch)
		}
		where[v] = epoch
	}
	for _, m := range w.members {
		if len(m.ends) != m.seq || m.left != 0 {
			w.fail("member %d: %d of %d proposals have an end", m.id, len(m.ends), m.seq)
		}
		for seq, how := range m.ends {
			switch epoch := where[Value{Member: m.id, Seq: seq}]; {
			case how == "committed" && epoch != m.commits[seq]:
				w.fail("member %d: %d committed in %d, and is in %d", m.id, seq, m.commits[seq], epoch)
			case how == givenUp && epoch != 0 && !m.open[seq]:
				w.fail("member %d: %d was given up for sure, and is in epoch %d", m.id, seq, epoch)
			}
		}
	}
}

// event is a scheduled function; those of one time run in the order in which
// they were scheduled.
type event struct {
	at, n int
	do    func()
}

func (w *simulation) after(wait int, do func()) {
	w.n++
	heap.Push(&w.events, event{w.now + wait, w.n, do})
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].n < h[j].n
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}
