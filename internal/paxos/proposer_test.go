package paxos

import (
	"fmt"
	"reflect"
	"testing"
)

func newMember(t *testing.T, id, acceptors int) *Proposer {
	t.Helper()
	p, err := NewProposer(id, acceptors)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// runToEnd delivers all messages between the members and the acceptors at once,
// and returns the events of each member in order.
func runToEnd(members []*Proposer, acceptors []*Acceptor, first []Message) (events []string) {
	for queue := first; len(queue) > 0; {
		m := queue[0]
		queue = queue[1:]
		var out Output
		if m.Kind.ToAcceptor() {
			if acceptors[m.To] == nil {
				continue
			}
			queue = append(queue, deliverAndPersist(acceptors[m.To], m)...)
			continue
		}
		members[m.To].Receive(m, &out)
		queue = append(queue, out.Send...)
		for _, e := range out.Events {
			events = append(events, fmt.Sprintf("%d %s", m.To, describe(e)))
		}
	}
	return events
}

func describe(e Event) string {
	switch e.Kind {
	case Learned:
		return fmt.Sprintf("learned %d=%s", e.Epoch, e.Value.Data)
	case Committed:
		return fmt.Sprintf("committed %d=%s", e.Epoch, e.Value.Data)
	default:
		return fmt.Sprintf("lost %d to %v %s while %v", e.Epoch, e.Ballot, e.Value.Data, e.During)
	}
}

func threeAcceptors() []*Acceptor { return []*Acceptor{NewAcceptor(0), NewAcceptor(1), NewAcceptor(2)} }

func TestAMemberCommitsAlone(t *testing.T) {
	p := newMember(t, 0, 3)
	var out Output
	p.Propose(1, "a", &out)
	got := runToEnd([]*Proposer{p}, threeAcceptors(), out.Send)
	if want := []string{"0 learned 1=a", "0 committed 1=a"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if p.Wants() || p.Open() || p.Epoch() != 2 || p.Phase() != Idle {
		t.Errorf("wants %v, open %v, epoch %d, %v after all is done", p.Wants(), p.Open(), p.Epoch(), p.Phase())
	}
}

func TestTheLoserRebasesAndCommits(t *testing.T) {
	members, acceptors := []*Proposer{newMember(t, 0, 3), newMember(t, 1, 3)}, threeAcceptors()
	var a, b Output
	members[0].Propose(1, "a", &a)
	members[1].Propose(1, "b", &b)
	got := runToEnd(members, acceptors, append(b.Send, a.Send...))
	want := []string{
		"0 lost 1 to ballot 1.1.1  while preparing",
		"0 learned 1=b", // as soon as the winner does
		"1 learned 1=b", "1 committed 1=b",
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	a.Reset()
	members[0].Again("a on b", &a)
	want = []string{"0 learned 2=a on b", "0 committed 2=a on b", "1 learned 2=a on b"}
	if got := runToEnd(members, acceptors, a.Send); !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAnAttemptIsOverWhenNoQuorumIsLeft(t *testing.T) {
	p := newMember(t, 0, 3)
	var out Output
	p.Propose(1, "a", &out)
	out.Reset()
	p.Unreachable(2, &out)
	p.Unreachable(2, &out) // the same one twice is one
	p.Unreachable(9, &out)
	if len(out.Events) != 0 {
		t.Fatalf("one of three is gone: %v", out.Events)
	}
	p.Receive(Message{Kind: Reject, From: 1, Ballot: Ballot{1, 1, 0}, Prior: Ballot{1, 8, 4}}, &out)
	if len(out.Events) != 1 || describe(out.Events[0]) != "lost 1 to ballot 1.8.4  while preparing" {
		t.Errorf("two of three are gone: %v", out.Events)
	}
	out.Reset()
	p.Again("a", &out)
	if got := out.Send[0].Ballot; got != (Ballot{1, 9, 0}) {
		t.Errorf("the next attempt has %v, want it above the winner's", got)
	}
	out.Reset()
	p.Timeout(&out)
	p.Timeout(&out)
	if len(out.Events) != 1 || !p.Wants() || p.Open() {
		t.Errorf("a timeout: %v, wants %v, open %v", out.Events, p.Wants(), p.Open())
	}
}

func TestAnswersOfOneAcceptorCountOnce(t *testing.T) {
	p, b := newMember(t, 0, 3), Ballot{1, 1, 0}
	var out Output
	p.Propose(1, "a", &out)
	p.Receive(Message{Kind: Promise, From: 1, Ballot: b}, &out)
	p.Receive(Message{Kind: Promise, From: 1, Ballot: b}, &out)
	if p.Phase() != Preparing {
		t.Fatal("two promises of one acceptor are a quorum")
	}
	p.Receive(Message{Kind: Promise, From: 2, Ballot: b}, &out)
	p.Receive(Message{Kind: Accepted, From: 2, Ballot: b}, &out)
	p.Receive(Message{Kind: Accepted, From: 2, Ballot: b}, &out)
	if p.Phase() != Accepting || !p.Open() {
		t.Fatal("two votes of one acceptor are a quorum")
	}
	p.Abandon()
	if !p.Open() || p.Wants() {
		t.Error("what was sent out to be accepted stays open")
	}
}

func TestAMemberFinishesWhatAnotherBegan(t *testing.T) {
	members, acceptors := []*Proposer{newMember(t, 0, 3), newMember(t, 1, 3)}, threeAcceptors()
	b := Ballot{1, 1, 0}
	deliverAndPersist(acceptors[0], Message{Kind: Accept, To: 0, Ballot: b, Value: Value{0, 1, "a"}})
	acceptors[2] = nil
	var out Output
	members[1].Propose(1, "b", &out)
	got := runToEnd(members, acceptors, out.Send)
	want := []string{"1 learned 1=a", "1 lost 1 to ballot 1.1.1 a while accepting"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTheValueOfTheHighestBallotIsTakenOver(t *testing.T) {
	high := Message{Kind: Promise, From: 0, Prior: Ballot{1, 2, 4}, Value: Value{4, 1, "high"}}
	low := Message{Kind: Promise, From: 1, Prior: Ballot{1, 1, 5}, Value: Value{5, 1, "low"}}
	none := Message{Kind: Promise, From: 2}
	for _, order := range [][]Message{{high, low, none}, {low, high, none}, {none, low, high}, {high, none, low}} {
		p := newMember(t, 0, 5)
		var out Output
		p.Propose(1, "mine", &out)
		for _, m := range order {
			m.Ballot = Ballot{1, 1, 0}
			p.Receive(m, &out)
		}
		if last := out.Send[len(out.Send)-1]; last.Kind != Accept || last.Value.Data != "high" || p.Open() {
			t.Errorf("%v %q, want the value of the highest ballot to be accepted", last.Kind, last.Value.Data)
		}
	}
}

func TestAQuorumIsMoreThanHalf(t *testing.T) {
	for n, want := range []int{1: 1, 2, 2, 3, 3, 4, 4} {
		if n > 0 && Quorum(n) != want {
			t.Errorf("%d of %d decide, want %d", Quorum(n), n, want)
		}
	}
}

func TestAMemberThatWasAwayCatchesUp(t *testing.T) {
	const epochs = 3*batch + 5
	writer, acceptors := newMember(t, 0, 3), threeAcceptors()
	late := newMember(t, 1, 3)
	members := []*Proposer{writer, late}
	for i := range epochs {
		if i == 2 {
			acceptors[2] = nil // it was away too
		}
		var out Output
		writer.Propose(i, fmt.Sprint(i), &out)
		runToEnd(members, acceptors, out.Send)
	}
	acceptors[2] = NewAcceptor(2)
	var out Output
	late.Learn(0, &out)
	if got := runToEnd(members, acceptors, out.Send); len(got) != epochs || late.Epoch() != epochs+1 {
		t.Fatalf("%d events and epoch %d, want %d epochs", len(got), late.Epoch(), epochs)
	}
	if !reflect.DeepEqual(late.Log(), writer.Log()) {
		t.Error("the logs differ")
	}
	for range epochs/batch + 1 { // each Tip is answered with the decisions that the acceptor missed
		out.Reset()
		late.Learn(2, &out)
		runToEnd(members, acceptors, out.Send)
	}
	if acceptors[2].Tip() != epochs {
		t.Errorf("the acceptor knows %d epochs, want %d", acceptors[2].Tip(), epochs)
	}
}

// A member that joins after a value was accepted, and before its decision is
// known, must not wait for the next decision.
func TestAMemberThatComesInBetweenLearnsFromVotes(t *testing.T) {
	acceptors, v := threeAcceptors(), Value{0, 1, "a"}
	for i, a := range acceptors {
		deliverAndPersist(a, Message{Kind: Accept, To: i, Ballot: Ballot{1, 1, 0}, Value: v})
	}
	late := newMember(t, 1, 3)
	var out Output
	for i := range acceptors {
		late.Learn(i, &out)
	}
	got := runToEnd([]*Proposer{newMember(t, 0, 3), late}, acceptors, out.Send)
	if want := []string{"1 learned 1=a"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAProposerIsRefused(t *testing.T) {
	for _, tt := range [][2]int{{-1, 3}, {0, 0}, {0, MaxAcceptors + 1}} {
		if _, err := NewProposer(tt[0], tt[1]); err == nil {
			t.Errorf("member %d of %d acceptors is no error", tt[0], tt[1])
		}
	}
	p, _ := NewProposer(0, 3)
	var out Output
	p.Again("x", &out)
	p.Receive(Message{Kind: Promise, From: 3}, &out)
	p.Receive(Message{Kind: Chosen, From: 0}, &out)
	if len(out.Send)+len(out.Events) != 0 {
		t.Errorf("nonsense leads to %+v", out)
	}
}

func TestASteadyMachineAllocatesLittle(t *testing.T) {
	p, acceptors := newMember(t, 0, 3), threeAcceptors()
	var out, reply Output
	n := 0
	allocs := testing.AllocsPerRun(1000, func() {
		out.Reset()
		n++
		p.Propose(n, "", &out)
		for i := 0; i < len(out.Send); i++ {
			m := out.Send[i]
			if !m.Kind.ToAcceptor() {
				p.Receive(m, &out)
				continue
			}
			reply.Reset()
			acceptors[m.To].Receive(m, &reply)
			acceptors[m.To].Persisted(len(reply.Persist), &reply)
			out.Send = append(out.Send, reply.Send...)
		}
	})
	if p.Epoch() != n+1 || allocs > 8 {
		t.Errorf("epoch %d after %d proposals with %v allocations each, want at most 8", p.Epoch(), n, allocs)
	}
}

func TestAMemberIsToldWhenAQuorumHasForgotten(t *testing.T) {
	p, err := NewProposer(1, 3)
	if err != nil {
		t.Fatal(err)
	}
	var out Output
	tip := func(from, floor int) []Event {
		out.Reset()
		p.Receive(Message{Kind: Tip, From: from, To: 1, Ballot: Ballot{Epoch: 9}, Prior: Ballot{Epoch: floor}}, &out)
		return out.Events
	}
	for range 2 {
		if got := tip(0, 5); len(got) != 0 {
			t.Errorf("one of three has forgotten: %+v", got)
		}
	}
	for range 2 { // for each proposal that it keeps waiting
		if got := tip(2, 1); len(got) != 1 || got[0].Kind != Forgotten || got[0].Epoch != 1 {
			t.Errorf("two of three have forgotten: %+v", got)
		}
	}
	p.Receive(Message{Kind: Chosen, From: 1, To: 1, Ballot: Ballot{1, 1, 1}, Value: Value{Data: "x"}}, &out)
	if got := tip(2, 1); len(got) != 0 || p.Epoch() != 2 {
		t.Errorf("the third has taught it: %+v", got)
	}
	if got := tip(0, 5); len(got) != 0 {
		t.Errorf("one has forgotten the next epoch: %+v", got)
	}
}
