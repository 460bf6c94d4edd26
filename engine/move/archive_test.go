package move

import (
	"bytes"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// newRun returns a run that has just been started.
func newRun(t *testing.T) *machine.Run {
	t.Helper()
	def := &machine.Definition{Name: "w", Steps: []machine.Step{{Name: "a", Handler: "h"}}}
	if err := def.Prepare(); err != nil {
		t.Fatal(err)
	}
	m := machine.New()
	m.Begin(1, machine.Header{At: 1})
	rec, _ := m.Define(def, 1)
	if err := m.Apply(&rec); err != nil {
		t.Fatal(err)
	}
	start := &machine.Start{ID: machine.NewID(1, 2, 3), Hash: def.Hash(), Input: []byte(`1`)}
	rec, _, err := m.Start(start, 1)
	if err == nil {
		err = m.Apply(&rec)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, _ := m.Run(start.ID)
	return r
}

// Runs that ended within a day of each other are together, and no archive replaces
// another.
func TestPacker(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	names := func(room int, ended ...time.Duration) (list []string) {
		l, err := new(memlog.Store).Open().Lease(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		p := &packer{lease: l, seq: 2, zip: store.NewEncoder(nil), room: room, seed: maphash.MakeSeed()}
		for _, at := range ended {
			r.Ended = int64(at)
			if err := p.add(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.flush(t.Context()); err != nil || p.count != len(ended) {
			t.Fatalf("flush() = %v after %d runs", err, p.count)
		}
		blobs, err := l.Blobs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var size int64
		for _, b := range blobs {
			list = append(list, strings.TrimPrefix(b.Name, "archive-00000000000000000002-"))
			size += b.Size
		}
		if size != p.stored {
			t.Errorf("%d bytes are stored, counted %d", size, p.stored)
		}
		return list
	}
	const h = time.Hour
	many := slices.Repeat([]time.Duration{7 * time.Second}, 40)
	input := r.Input
	r.Input = bytes.Repeat([]byte{'1'}, store.ArchiveFrame/10)
	got := names(1, many...)
	r.Input = input
	if len(got) < 3 || got[0] != "10" && got[0] != "7" {
		t.Errorf("archives that are full have the names %v", got)
	}
	for _, test := range []struct {
		name  string
		ended []time.Duration
		want  string
	}{
		{"none", nil, ""},
		{"a day", []time.Duration{h, 25 * h, 2 * h}, "90000"},
		{"two days", []time.Duration{h, 2 * h, 26 * h, 27 * h}, "7200 97200"},
		{"not in order", []time.Duration{48 * h, h, 49 * h}, "172800 172801 176400"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := strings.Join(names(1<<20, test.ended...), " "); got != test.want {
				t.Errorf("archives have the names %s, want %s", got, test.want)
			}
		})
	}
}
