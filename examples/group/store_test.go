package main

import (
	"bufio"
	"bytes"
	"context"
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
	if got, err := s.load(); got != nil || err != nil {
		t.Errorf("a new one has %v, %v", got, err)
	}
	slot := paxos.Slot{Epoch: 1, Promised: paxos.Ballot{Epoch: 1, Attempt: 2, Member: 3}, Value: paxos.Value{Data: "x\n"}, Chosen: true}
	for _, want := range [][]paxos.Slot{{slot}, {slot, {Epoch: 2}}} {
		if err := s.save(want); err != nil {
			t.Fatal(err)
		}
		if got, err := s.load(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("loaded %+v, %v; want %+v", got, err, want)
		}
	}
	if err := os.WriteFile(s.path+".next", []byte("half a fi"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.load(); err != nil || len(got) != 2 {
		t.Errorf("beside a write that was cut off: %+v, %v", got, err)
	}
	if err := os.WriteFile(s.path, []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.load(); err == nil || !strings.Contains(err.Error(), "must not answer") {
		t.Errorf("a broken file: %v", err)
	}
	if err := (store{filepath.Join(t.TempDir(), "no", "a.json")}).save(nil); err == nil {
		t.Error("a folder that is not there is no error")
	}
}

// served is an acceptor in this process.
func served(t *testing.T, st store) (address string, end func() error) {
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

// ask sends a message and returns the first answer, an error when the acceptor
// hangs up.
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
	address, end := served(t, st)
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
	if slots, err := st.load(); err != nil || len(slots) != 1 || slots[0].Promised != b {
		t.Errorf("on disk when the answer came: %+v, %v", slots, err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestAnAcceptorThatCanNotWriteDoesNotAnswer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	address, end := served(t, store{filepath.Join(dir, "a.json")})
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
