package paxos

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

var full = Message{
	Kind: Promise, From: 2, To: 7, Ballot: Ballot{3, 2, 7}, Prior: Ballot{3, 1, 4},
	Value: Value{4, 9, "remove 5"}, More: true,
}

func read(b []byte) (Message, error) { return Read(bufio.NewReader(bytes.NewReader(b))) }

func TestMessagesSurviveTheWire(t *testing.T) {
	var wire []byte
	list := []Message{full, {Kind: Prepare}, {Kind: Tip, Ballot: Ballot{Epoch: math.MaxInt32}}, {Kind: Accept, Value: Value{Data: strings.Repeat("x", MaxData)}}}
	for _, m := range list {
		var err error
		if wire, err = Append(wire, m); err != nil {
			t.Fatal(err)
		}
	}
	r := bufio.NewReader(bytes.NewReader(wire))
	for _, want := range list {
		if got, err := Read(r); err != nil || got != want {
			t.Errorf("read %+v, %v; want %+v", got, err, want)
		}
	}
	if _, err := Read(r); !errors.Is(err, io.EOF) {
		t.Errorf("after the last message: %v, want EOF", err)
	}
}

func TestWhatCanNotBeSentIsRefused(t *testing.T) {
	for name, m := range map[string]Message{
		"no kind":            {},
		"an unknown kind":    {Kind: Tip + 1},
		"a negative number":  {Kind: Prepare, From: -1},
		"a number too large": {Kind: Prepare, Ballot: Ballot{Attempt: math.MaxInt32 + 1}},
		"too much data":      {Kind: Prepare, Value: Value{Data: strings.Repeat("x", MaxData+1)}},
	} {
		if b, err := Append([]byte("x"), m); err == nil || string(b) != "x" {
			t.Errorf("%s: appended %q, %v", name, b, err)
		}
	}
}

func TestWhatMakesNoSenseIsRefused(t *testing.T) {
	whole, err := Append(nil, full)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n < len(whole); n++ {
		if m, err := read(whole[:n]); err == nil {
			t.Errorf("a message cut off after %d bytes is %+v", n, m)
		}
	}
	for name, b := range map[string][]byte{
		"a huge length":     {0xff, 0xff, 0xff, 0xff, 0x7f},
		"an endless length": bytes.Repeat([]byte{0xff}, 20),
		"an unknown kind":   {2, 99, 0},
		"nothing":           {0},
		"numbers missing":   {3, 1, 0, 1},
	} {
		if m, err := read(b); err == nil {
			t.Errorf("%s is %+v", name, m)
		}
	}
}

func FuzzRead(f *testing.F) {
	b, _ := Append(nil, full)
	f.Add(b)
	f.Add([]byte{2, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := read(b)
		if err != nil {
			return
		}
		again, err := Append(nil, m)
		if err != nil {
			t.Fatalf("%+v was read and can't be sent: %v", m, err)
		}
		if got, err := read(again); err != nil || got != m {
			t.Fatalf("%+v became %+v, %v", m, got, err)
		}
	})
}
