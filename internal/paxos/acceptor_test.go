package paxos

import (
	"reflect"
	"testing"
)

// drive passes a message to the acceptor and returns the output.
func drive(a *Acceptor, m Message) Output {
	var out Output
	a.Receive(m, &out)
	return out
}

// deliverAndPersist is drive with a disk that writes at once.
func deliverAndPersist(a *Acceptor, m Message) []Message {
	out := drive(a, m)
	a.Persisted(len(out.Persist), &out)
	return out.Send
}

func kinds(list []Message) (names []string) {
	for _, m := range list {
		names = append(names, m.Kind.String())
	}
	return names
}

func TestAnAcceptorAnswersWhenItsDiskHasIt(t *testing.T) {
	a, b := NewAcceptor(0), Ballot{1, 1, 3}
	out := drive(a, Message{Kind: Prepare, From: 3, Ballot: b})
	if len(out.Send) != 0 || !reflect.DeepEqual(out.Persist, []Slot{{Epoch: 1, Promised: b}}) {
		t.Fatalf("sends %v and persists %v, want only a promise to be persisted", out.Send, out.Persist)
	}
	if again := drive(a, Message{Kind: Prepare, From: 3, Ballot: b}); len(again.Send)+len(again.Persist) != 0 {
		t.Errorf("the same again: %+v, want nothing before the disk has it", again)
	}
	second := drive(a, Message{Kind: Accept, From: 3, Ballot: b, Value: Value{3, 1, "x"}})
	out.Reset()
	a.Persisted(1, &out)
	if got := kinds(out.Send); !reflect.DeepEqual(got, []string{"promise", "promise"}) {
		t.Errorf("after the first write: %v, want both promises", got)
	}
	out.Reset()
	a.Persisted(len(second.Persist), &out)
	if got := kinds(out.Send); !reflect.DeepEqual(got, []string{"accepted"}) {
		t.Errorf("after the second write: %v, want accepted", got)
	}
	out.Reset()
	a.Persisted(5, &out)
	if len(out.Send) != 0 {
		t.Errorf("nothing is left, and it sends %v", out.Send)
	}
}

func TestARejectionCarriesTheBallotThatWon(t *testing.T) {
	a, high, low := NewAcceptor(2), Ballot{1, 2, 0}, Ballot{1, 1, 9}
	deliverAndPersist(a, Message{Kind: Prepare, To: 2, Ballot: high})
	for _, k := range []Kind{Prepare, Accept} {
		want := []Message{{Kind: Reject, From: 2, To: 9, Ballot: low, Prior: high}}
		if got := deliverAndPersist(a, Message{Kind: k, From: 9, To: 2, Ballot: low}); !reflect.DeepEqual(got, want) {
			t.Errorf("%v below: %+v, want %+v", k, got, want)
		}
	}
	deliverAndPersist(a, Message{Kind: Accept, To: 2, Ballot: high, Value: Value{Data: "one"}})
	if got := deliverAndPersist(a, Message{Kind: Accept, To: 2, Ballot: high, Value: Value{Data: "two"}}); got[0].Kind != Reject {
		t.Errorf("a second value under one ballot: %v, want a rejection", got)
	}
}

func TestADecidedEpochIsAnsweredWithTheDecision(t *testing.T) {
	a, v := NewAcceptor(0), Value{1, 1, "won"}
	won := Message{Kind: Chosen, To: 9, Ballot: Ballot{1, 1, 1}, Value: v}
	if told := deliverAndPersist(a, Message{Kind: Commit, From: 1, Ballot: won.Ballot, Value: v}); len(told) != 0 {
		t.Errorf("%+v, want no answer to a commit", told)
	}
	deliverAndPersist(a, Message{Kind: Commit, From: 1, Ballot: Ballot{1, 2, 2}, Value: Value{}}) // comes too late
	for _, k := range []Kind{Prepare, Accept} {
		if got := deliverAndPersist(a, Message{Kind: k, From: 9, Ballot: Ballot{1, 9, 9}}); len(got) != 2 || got[0] != won || got[1].Kind != Tip {
			t.Errorf("%v: %+v, want %+v", k, got, won)
		}
	}
	if again := NewAcceptor(0, a.Slots()...); again.Tip() != 1 || !reflect.DeepEqual(again.Slots(), a.Slots()) {
		t.Errorf("after a restart: tip %d and %+v", again.Tip(), again.Slots())
	}
}

func TestAllMembersHearWhatIsAccepted(t *testing.T) {
	a := NewAcceptor(0)
	for _, member := range []int{7, 5, 7} {
		deliverAndPersist(a, Message{Kind: Learn, From: member, Ballot: Ballot{Epoch: 1}})
	}
	m := Message{Kind: Accept, From: 6, Ballot: Ballot{1, 1, 6}, Value: Value{6, 1, "x"}}
	for _, want := range [][]int{{5, 6, 7}, {6}} { // the answer to a repeated message goes only to its sender
		var to []int
		for _, told := range deliverAndPersist(a, m) {
			if to = append(to, told.To); told.Kind != Accepted || told.Value != m.Value || told.Ballot != m.Ballot {
				t.Errorf("told %+v", told)
			}
		}
		if !reflect.DeepEqual(to, want) {
			t.Errorf("told %v, want %v", to, want)
		}
	}
}

func TestNonsenseIsIgnored(t *testing.T) {
	a := NewAcceptor(0)
	for _, m := range []Message{
		{}, {Kind: Prepare}, {Kind: Promise, Ballot: Ballot{1, 1, 1}}, {Kind: Tip + 1, Ballot: Ballot{1, 1, 1}},
		{Kind: Prepare, To: 1, Ballot: Ballot{1, 1, 1}},
		{Kind: Prepare, From: -1, Ballot: Ballot{1, 1, 1}},
		{Kind: Accept, Ballot: Ballot{1, 0, 1}}, {Kind: Commit, Ballot: Ballot{-1, 1, 1}},
	} {
		if out := drive(a, m); len(out.Send)+len(out.Persist) != 0 || len(a.Slots()) != 0 {
			t.Errorf("%+v leads to %+v", m, out)
		}
	}
}

// decide reports decisions of the epochs up to n to the acceptor.
func decide(a *Acceptor, n int) {
	for e := 1; e <= n; e++ {
		deliverAndPersist(a, Message{Kind: Commit, From: 1, Ballot: Ballot{e, 1, 1}, Value: Value{1, e, "x"}})
	}
}

func TestWhatIsForgottenStaysDecided(t *testing.T) {
	a := NewAcceptor(0)
	decide(a, 5)
	deliverAndPersist(a, Message{Kind: Prepare, From: 2, Ballot: Ballot{6, 3, 2}})
	a.Forget(3)
	a.Forget(1) // which it has forgotten already
	for _, again := range []*Acceptor{a, NewAcceptor(0, a.Slots()...)} {
		want := []Slot{
			{Epoch: 3, Chosen: true},
			{Epoch: 4, Accepted: Ballot{4, 1, 1}, Value: Value{1, 4, "x"}, Chosen: true},
			{Epoch: 5, Accepted: Ballot{5, 1, 1}, Value: Value{1, 5, "x"}, Chosen: true},
			{Epoch: 6, Promised: Ballot{6, 3, 2}},
		}
		if got := again.Slots(); !reflect.DeepEqual(got, want) || again.Tip() != 5 || again.Floor() != 3 {
			t.Fatalf("it has %+v and the tip %d, want %+v and 5", got, again.Tip(), want)
		}
		told := []Message{{Kind: Tip, To: 9, Ballot: Ballot{Epoch: 5}, Prior: Ballot{Epoch: 3}}}
		for _, k := range []Kind{Prepare, Accept, Learn} {
			for epoch := 1; epoch <= 3; epoch++ {
				out := drive(again, Message{Kind: k, From: 9, Ballot: Ballot{epoch, 9, 9}, Value: Value{9, 1, "other"}})
				if !reflect.DeepEqual(out.Send, told) || len(out.Persist) != 0 {
					t.Errorf("%v in epoch %d: %+v, want only %+v", k, epoch, out, told)
				}
			}
		}
		if out := drive(again, Message{Kind: Commit, From: 9, Ballot: Ballot{2, 9, 9}, Value: Value{9, 1, "other"}}); len(out.Send)+len(out.Persist) != 0 {
			t.Errorf("a commit in epoch 2: %+v, want nothing", out)
		}
		if got := kinds(deliverAndPersist(again, Message{Kind: Learn, From: 9, Ballot: Ballot{Epoch: 4}})); !reflect.DeepEqual(got, []string{"chosen", "chosen", "tip"}) {
			t.Errorf("from epoch 4 on it teaches %v", got)
		}
	}
}

func TestNothingIsForgottenThatIsOpen(t *testing.T) {
	a := NewAcceptor(0)
	decide(a, 2)
	deliverAndPersist(a, Message{Kind: Accept, From: 2, Ballot: Ballot{3, 1, 2}, Value: Value{2, 1, "open"}})
	deliverAndPersist(a, Message{Kind: Commit, From: 1, Ballot: Ballot{4, 1, 1}, Value: Value{1, 4, "x"}})
	a.Forget(100)
	want := []Slot{
		{Epoch: 2, Chosen: true},
		{Epoch: 3, Promised: Ballot{3, 1, 2}, Accepted: Ballot{3, 1, 2}, Value: Value{2, 1, "open"}},
		{Epoch: 4, Accepted: Ballot{4, 1, 1}, Value: Value{1, 4, "x"}, Chosen: true},
	}
	if got := a.Slots(); !reflect.DeepEqual(got, want) {
		t.Errorf("it has %+v, want %+v", got, want)
	}
}
