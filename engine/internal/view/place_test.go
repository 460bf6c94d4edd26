package view

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// FuzzID checks that any id is read back from a row unchanged.
func FuzzID(f *testing.F) {
	for _, s := range []string{"", "a", "01KA3T8ZJ0VWXYZ0123456789A", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "80000000000000000000000000", "123456789", "01ka3t8zj0vwxyz0123456789a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if got := idAt(5, asideID(id)); got != id {
			t.Errorf("an id put aside %q comes back as %q", id, got)
		}
		u, ok := parseULID(id)
		if !ok {
			return
		}
		if got := idAt(u.home(), u.rest[:]); got != id {
			t.Errorf("an id at home %q comes back as %q", id, got)
		}
		if from, to := idRange(id[:min(len(id), 12)]); u.home() < from || u.home() >= to {
			t.Errorf("%q is at %d, not in [%d, %d)", id, u.home(), from, to)
		}
	})
}

func TestCrowdOfOneMillisecondIsKept(t *testing.T) {
	t.Parallel()
	const n = 1100 // more than there are slots
	v := openTest(t)
	crowd := make([]Run, n)
	for i := range crowd {
		u := ulid{milli: benchStart.UnixMilli(), rest: [10]byte{8: byte(i >> 8), 9: byte(i)}}
		crowd[i] = Run{ID: u.String(), Created: benchStart, Updated: benchStart, State: "queued", Step: fmt.Sprint(i)}
	}
	write(t, v, crowd...)
	for i := range crowd {
		crowd[i].State = "running"
	}
	// Those at home leave, and those that were put aside must not come back twice.
	if err := v.Write(t.Context(), Batch{Cursor: v.Cursor(), Delete: idsOf(crowd[:n/2])}); err != nil {
		t.Fatal(err)
	}
	write(t, v, crowd[n/2:]...)
	seen := map[string]bool{}
	for _, r := range all(t, v, Filter{Limit: 400}) {
		if seen[r.ID] || r.State != "running" {
			t.Errorf("run %q in state %q, again: %v", r.ID, r.State, seen[r.ID])
		}
		seen[r.ID] = true
	}
	if len(seen) != n/2 {
		t.Errorf("%d runs, want %d", len(seen), n/2)
	}
	for i := 0; i < n; i += 10 {
		r := crowd[i]
		got, ok, err := v.Get(t.Context(), r.ID)
		if err != nil || ok != (i >= n/2) || ok && got.Step != fmt.Sprint(i) {
			t.Fatalf("Get(%d) = %+v, %v, %v", i, got, ok, err)
		}
	}
	integrity(t, v)
}

func TestNoTextOrTimeBreaksARun(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	size := 1 << 20
	if raceEnabled {
		size = 1 << 16
	}
	huge := strings.Repeat("\x00\xff🌊", size/6)
	far := time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
	for i, r := range []Run{
		{ID: "x"},
		{ID: "\x00", Workflow: "\x00", State: "\xff", Key: "\x00", Step: "\x00", Error: "\x00", Reason: "\x00", ReplacedBy: "\x00"},
		{ID: "far", Created: far, Updated: far, Ended: far, Next: far, Attempts: 1 << 40},
		{ID: "old", Created: time.UnixMicro(-1 << 50).UTC(), Next: time.UnixMicro(1).UTC(), Attempts: -5},
		{ID: "huge", Error: huge, Key: huge, Workflow: huge, Step: huge, Input: []byte(huge), Output: []byte(huge), Detail: []byte(huge)},
		{ID: huge},
	} {
		write(t, v, r)
		index(t, v)
		got, ok, err := v.Get(t.Context(), r.ID)
		if err != nil || !ok || !sameRun(got, r) {
			t.Errorf("run %d: Get() = %.300v, %v, %v\nwant %.300v", i, got, ok, err, r)
		}
	}
	if err := v.Write(t.Context(), Batch{Cursor: 100, Put: []Run{{}}}); err == nil {
		t.Error("a run without an id was written")
	}
	if _, err := v.Groups(t.Context(), Filter{}, 10); err != nil {
		t.Error(err)
	}
	integrity(t, v)
}
