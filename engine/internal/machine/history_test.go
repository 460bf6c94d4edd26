package machine

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestHistoryHasEveryKind(t *testing.T) {
	r := &Run{Created: epoch, body: new(body)}
	var want []Record
	for k := Opened; k < kinds; k++ {
		rec := Record{
			Kind: k, Run: ID{1}, Step: 3, At: epoch + int64(k)*sec, Attempt: 4, Due: epoch + 5, Delay: time.Second, Prev: 2, By: 1,
			Reason: 3, Deadline: epoch + 9, other: ID{2}, Hash: Hash{3}, Text: "ask:text", Data: []byte("data"), Ends: Dead, outputs: [][]byte{nil, {1}},
		}
		appendHistory(r, &rec)
		rec.Run, rec.Hash, rec.Data = ID{}, Hash{}, nil // the run has them
		if k != Called && k != Failed && k != Undoing { // they keep the question, and the code of the error
			rec.outputs = nil
		}
		if k == Started {
			rec.Text = ""
		}
		if k == Called { // and its first attempt began
			rec.Attempt, rec.Deadline = 0, 0
			want = append(want, rec)
			rec = Record{Kind: Begun, Step: 3, At: rec.At, Attempt: 4, Deadline: epoch + 9}
		}
		want = append(want, rec)
	}
	i := 0
	for rec := range r.Records() {
		if !equal(&rec, &want[i]) {
			t.Errorf("record %d\n got %+v\nwant %+v", i, rec, want[i])
		}
		i++
	}
	if i != len(want) {
		t.Errorf("%d records, want %d", i, len(want))
	}
	for range r.Records() {
		break // which must not panic
	}
}

func TestHistoryIsShortened(t *testing.T) {
	tests := []struct {
		name string
		n    int
		text func(*rand.Rand) int
	}{
		{"small records", 30_000, func(*rand.Rand) int { return 10 }},
		{"records of all sizes", 1000, func(r *rand.Rand) int { return r.IntN(4 << 10) }},
		{"a large one now and then", 5000, func(r *rand.Rand) int {
			if r.IntN(50) == 0 {
				return 16 << 10
			}
			return 5
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 1))
			r, text := &Run{Created: epoch, body: new(body)}, strings.Repeat("x", 32<<10)
			shortened := 0
			for i := range test.n {
				before := len(r.History)
				appendHistory(r, &Record{Kind: Failed, At: epoch + int64(i), Attempt: i + 1, Text: text[:test.text(rng)]})
				if len(r.History) > maxHistory {
					t.Fatalf("%d bytes after %d records", len(r.History), i+1)
				}
				if len(r.History) < before {
					shortened++
				}
			}
			// Shortening reads all of the history, so it must be rare.
			if shortened == 0 || shortened > test.n/20 {
				t.Errorf("shortened %d times by %d records", shortened, test.n)
			}
			checkShort(t, r, test.n)
		})
	}
}

// checkShort checks that a shortened history of records with the numbers 1 to n has its beginning and
// its end, and the right number of omitted records.
func checkShort(t *testing.T, r *Run, n int) {
	t.Helper()
	at, notes, size := 0, 0, 0
	for rec := range r.Records() {
		if rec.Kind == Omitted {
			at += rec.Attempt
			notes++
			continue
		}
		if at++; rec.Attempt != at {
			t.Fatalf("record %d where %d should be", rec.Attempt, at)
		}
		if notes == 0 {
			size += len(rec.append(nil, epoch))
		}
	}
	if at != n || notes != 1 {
		t.Errorf("it ends with record %d of %d, and has %d notes", at, n, notes)
	}
	if size < headHistory/2 || len(r.History)-size < tailHistory/2 {
		t.Errorf("a head of %d bytes and a tail of %d", size, len(r.History)-size)
	}
}

func TestOneHugeRecordDoesNotFillTheHistory(t *testing.T) {
	r := &Run{Created: epoch, body: new(body)}
	for i := range 20 {
		appendHistory(r, &Record{Kind: Failed, At: epoch, Attempt: i + 1, Text: strings.Repeat("é", 300<<10)})
		if len(r.History) > maxHistory {
			t.Fatalf("%d bytes after %d records of 600 kB", len(r.History), i+1)
		}
	}
	for rec := range r.Records() {
		if rec.Kind == Failed && (len(rec.Text) < 1000 || strings.ToValidUTF8(rec.Text, "") != rec.Text) {
			t.Errorf("a text of %d bytes is kept", len(rec.Text))
		}
	}
}

func TestRecordsOfDamagedBytesEnd(t *testing.T) {
	good := &Run{Created: epoch, body: new(body)}
	for k := Started; k < kinds; k++ {
		appendHistory(good, &Record{Kind: k, At: epoch + 5, Attempt: 3, Due: epoch + 9, Text: "some text"})
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 4000 {
		r := &Run{Created: epoch, body: &body{History: append([]byte(nil), good.History...)}}
		for range 1 + rng.IntN(3) {
			r.History[rng.IntN(len(r.History))] = byte(rng.Uint32())
		}
		r.History = r.History[:rng.IntN(len(r.History)+1)]
		n := 0
		for range r.Records() {
			if n++; n > len(r.History) {
				t.Fatalf("%d records of %d bytes: %x", n, len(r.History), r.History)
			}
		}
		shortenHistory(r)
	}
}

func TestSituation(t *testing.T) {
	w := newWorld(t)
	r := w.start(w.define(steps(t, "one", "a: fixed(1s) attempts=2", "b: fixed(1s) attempts=2")), Start{})
	w.attempt(r)
	w.pass(time.Second)
	w.finish(r, 1, Result{Failed: true, Error: "broke"})
	if step, text, at := Situation(r); step != "a" || text != "broke" || at.UnixNano() != w.now {
		t.Errorf("Situation = %q, %q, %v", step, text, at)
	}
	w.finish(r, 0, Result{})
	w.pass(time.Second)
	w.attempt(r)
	if step, _, _ := Situation(r); step != "b" {
		t.Errorf("Situation is that of %q", step)
	}
	w.finish(r, 1, Result{})
	if step, text, at := Situation(r); step != "" || text != "" || at.UnixNano() != w.now {
		t.Errorf("Situation of one that succeeded = %q, %q, %v", step, text, at)
	}
}
