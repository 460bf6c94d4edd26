package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/paxos"
)

func TestAStoreReturnsWhatWasSavedLast(t *testing.T) {
	s := store{filepath.Join(t.TempDir(), "a.json")}
	if got, err := s.load(); got.Slots != nil || len(got.Known) != 0 || err != nil {
		t.Errorf("a new one has %v, %v", got, err)
	}
	slot := paxos.Slot{Epoch: 1, Promised: paxos.Ballot{Epoch: 1, Attempt: 2, Member: 3}, Value: paxos.Value{Data: "x\n"}, Chosen: true}
	for _, want := range []savedState{
		{Known: map[int]int{3: 1}, Slots: []paxos.Slot{slot, {Epoch: 2}, {Epoch: 3}}},
		{Known: map[int]int{3: 1, 7: 0}, Slots: []paxos.Slot{slot, {Epoch: 2}}},
	} {
		if err := s.save(want); err != nil {
			t.Fatal(err)
		}
		if got, err := s.load(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("loaded %+v, %v; want %+v", got, err, want)
		}
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(s.path+".next", "half a fi")
	if got, err := s.load(); err != nil || len(got.Slots) != 2 {
		t.Errorf("beside a write that was cut off: %+v, %v", got, err)
	}
	for _, broken := range []string{"", "[{", "[]", `{"Known":{"x":1}}`} {
		write(s.path, broken)
		if _, err := s.load(); err == nil || !strings.Contains(err.Error(), "must not answer") {
			t.Errorf("a file %q: %v", broken, err)
		}
	}
	write(s.path, `{"Known":null}`)
	if got, err := s.load(); err != nil || got.Known == nil {
		t.Errorf("a file without members: %+v, %v", got, err)
	}
	if err := (store{filepath.Join(t.TempDir(), "no", "a.json")}).save(savedState{}); err == nil {
		t.Error("a folder that is not there is no error")
	}
}

// serveForTest runs an acceptor in this process.
func serveForTest(t *testing.T, st store) (address string, end func() error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, 0, ln, st) }()
	end = func() error { cancel(); return <-done }
	return ln.Addr().String(), end
}

// ask sends a message and returns the first answer, or an error if the acceptor
// closes the connection.
func ask(t *testing.T, address string, wire []byte) (paxos.Message, error) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write(wire); err != nil {
		t.Fatal(err)
	}
	return paxos.Read(bufio.NewReader(conn))
}

func TestAnAcceptorWritesBeforeItAnswers(t *testing.T) {
	st := store{filepath.Join(t.TempDir(), "a.json")}
	address, end := serveForTest(t, st)
	b := paxos.Ballot{Epoch: 1, Attempt: 1, Member: 3}
	prepare, err := paxos.Append(nil, paxos.Message{Kind: paxos.Prepare, From: 3, Ballot: b})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, address, bytes.Repeat([]byte{0xff}, 100)); err == nil {
		t.Error("nonsense is answered")
	}
	if got, err := ask(t, address, prepare); err != nil || got.Kind != paxos.Promise {
		t.Errorf("after nonsense from another: %+v, %v; want a promise", got, err)
	}
	if m, err := st.load(); err != nil || len(m.Slots) != 1 || m.Slots[0].Promised != b || len(m.Known) != 1 {
		t.Errorf("on disk when the answer came: %+v, %v", m, err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestAnAcceptorThatCanNotWriteDoesNotAnswer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	address, end := serveForTest(t, store{filepath.Join(dir, "a.json")})
	prepare, err := paxos.Append(nil, paxos.Message{Kind: paxos.Prepare, From: 3, Ballot: paxos.Ballot{Epoch: 1, Attempt: 1, Member: 3}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ask(t, address, prepare); err == nil {
		t.Errorf("it answers %+v", got)
	}
	if err := end(); err == nil {
		t.Error("it ends without an error")
	}
}

func TestAMemberIsWrittenDownBeforeItIsAnswered(t *testing.T) {
	st := store{filepath.Join(t.TempDir(), "a.json")}
	address, end := serveForTest(t, st)
	learn, err := paxos.Append(nil, paxos.Message{Kind: paxos.Learn, From: 4, Ballot: paxos.Ballot{Epoch: 8}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ask(t, address, learn); err != nil || got.Kind != paxos.Tip {
		t.Errorf("%+v, %v; want a tip", got, err)
	}
	if m, err := st.load(); err != nil || !reflect.DeepEqual(m.Known, map[int]int{4: 7}) {
		t.Errorf("on disk when the answer came: %+v, %v", m, err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// newTestServer returns a server that has received the current epochs of
// members.
func newTestServer(t *testing.T, decided int, at ...int) *server {
	t.Helper()
	s := &server{acceptor: paxos.NewAcceptor(0), known: map[int]int{}, peers: map[int]*peer{}, store: store{filepath.Join(t.TempDir(), "a.json")}}
	for member, epoch := range at {
		s.receive(incoming{message: paxos.Message{Kind: paxos.Learn, From: member, Ballot: paxos.Ballot{Epoch: epoch}}})
	}
	for e := 1; e <= decided; e++ {
		b := paxos.Ballot{Epoch: e, Attempt: 1}
		s.receive(incoming{message: paxos.Message{Kind: paxos.Commit, Ballot: b, Value: paxos.Value{Seq: e}}})
	}
	if err := s.save(); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOnlyWhatAllMembersKnowIsForgotten(t *testing.T) {
	for _, tt := range []struct {
		name    string
		decided int
		at      []int // the epochs that members are in
		floor   int   // up to which all is forgotten
	}{
		{"the last decisions are kept in any case", 200, []int{201, 201}, 200 - recent},
		{"a member that is behind holds back what it lacks", 200, []int{201, 31}, 30},
		{"a member that knows nothing holds back everything", 200, []int{201, 1}, 0},
		{"nothing is forgotten of a short log", recent, []int{recent + 1, recent + 1}, 0},
		{"a member ahead of the acceptor changes nothing", 100, []int{1000, 101}, 100 - recent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestServer(t, tt.decided, tt.at...)
			m, err := s.store.load()
			if err != nil {
				t.Fatal(err)
			}
			want := tt.decided - tt.floor
			if tt.floor > 0 {
				want++ // stands for all that is forgotten
			}
			if len(m.Slots) != want || paxos.NewAcceptor(0, m.Slots...).Tip() != tt.decided {
				t.Errorf("%d slots from %+v on, want %d, and to know of %d epochs", len(m.Slots), m.Slots[0], want, tt.decided)
			}
		})
	}
}

func TestWhoCameTooLateHoldsNothingBack(t *testing.T) {
	s := newTestServer(t, 100, 101)
	const stranger = 1
	s.receive(incoming{message: paxos.Message{Kind: paxos.Learn, From: stranger, Ballot: paxos.Ballot{Epoch: 1}}})
	for e := 101; e < 200; e++ {
		s.receive(incoming{message: paxos.Message{Kind: paxos.Commit, Ballot: paxos.Ballot{Epoch: e, Attempt: 1}, Value: paxos.Value{Seq: e}}})
	}
	if err := s.save(); err != nil || s.acceptor.Floor() != 199-recent {
		t.Errorf("%v, and all up to %d is forgotten, want %d", err, s.acceptor.Floor(), 199-recent)
	}
}

func TestAnAcceptorTalksToSoManyMembers(t *testing.T) {
	s := newTestServer(t, 1)
	here, there := net.Pipe()
	for member := range 2 * maxMembers {
		s.receive(incoming{from: &peer{conn: here}, message: paxos.Message{Kind: paxos.Learn, From: member, Ballot: paxos.Ballot{Epoch: 1}}})
	}
	if len(s.known) != maxMembers || len(s.peers) != maxMembers {
		t.Errorf("it knows %d members by %d connections, want %d", len(s.known), len(s.peers), maxMembers)
	}
	if _, err := there.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("who brings more members: %v, want it cut off", err)
	}
}
