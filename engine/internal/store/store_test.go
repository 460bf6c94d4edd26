package store

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// newState returns a state with runs that have just been started and wait for an hour.
func newState(t testing.TB, runs int) *machine.Machine {
	t.Helper()
	def := &machine.Definition{Name: "w", Steps: []machine.Step{{Name: "a", Handler: "h"}}}
	if err := def.Prepare(); err != nil {
		t.Fatal(err)
	}
	m := machine.New()
	m.Begin(1, machine.Header{At: 1})
	apply := func(rec machine.Record) {
		if err := m.Apply(&rec); err != nil {
			t.Fatal(err)
		}
	}
	rec, _ := m.Define(def, 1)
	apply(rec)
	for i := range runs {
		rec, _, err := m.Start(&machine.Start{
			ID: machine.NewID(1, 2, uint64(i+1)), Hash: def.Hash(), Input: bytes.Repeat(strconv.AppendInt(nil, int64(i), 10), 50), At: 3600e9,
		}, 1)
		if err != nil {
			t.Fatal(err)
		}
		apply(rec)
	}
	return m
}

func newLease(t testing.TB) journal.Lease {
	t.Helper()
	l, err := new(memlog.Store).Open().Lease(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestNames(t *testing.T) {
	t.Parallel()
	if got := SnapshotName(7); got != "snapshot-00000000000000000007" {
		t.Errorf("SnapshotName(7) = %s", got)
	}
	if got := ArchiveName(7, 90); got != "archive-00000000000000000007-90" {
		t.Errorf("ArchiveName(7, 90) = %s", got)
	}
	if seq, ok := ParseName(SnapshotName(7), SnapshotPrefix); seq != 7 || !ok {
		t.Errorf("ParseName(snapshot) = %d, %v", seq, ok)
	}
	if seq, newest, ok := ParseArchiveName(ArchiveName(7, 90)); seq != 7 || newest != 90 || !ok {
		t.Errorf("ParseArchiveName(archive) = %d, %d, %v", seq, newest, ok)
	}
	for _, name := range []string{"", "moved", "snapshot-", "archive-x-1"} {
		if _, ok := ParseName(name, SnapshotPrefix); ok {
			t.Errorf("ParseName(%q) is one", name)
		}
		if _, _, ok := ParseArchiveName(name); ok {
			t.Errorf("ParseArchiveName(%q) is one", name)
		}
	}
}

func TestAStateIsFoldedFromItsSnapshot(t *testing.T) {
	t.Parallel()
	l, m := newLease(t), newState(t, 3*FrameRuns)
	var e machine.Entry
	e.Reset(1, 0)
	if _, err := l.Append(t.Context(), 0, journal.ID{1}, e.Bytes()); err != nil {
		t.Fatal(err)
	}
	size, err := WriteState(t.Context(), l, m, 1)
	if err != nil || size == 0 {
		t.Fatalf("WriteState() = %d, %v", size, err)
	}
	if err := VerifySnapshot(t.Context(), l, SnapshotName(1)); err != nil {
		t.Error(err)
	}
	s, err := Fold(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := len(s.Machine.All()); got != 3*FrameRuns || s.Machine.Seq() != 1 {
		t.Errorf("%d runs of entry %d, want %d of 1", got, s.Machine.Seq(), 3*FrameRuns)
	}
}

// fileLease is a lease whose blobs support random access, as files do.
type fileLease struct{ journal.Lease }

func (l fileLease) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	raw, err := l.Lease.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(raw)
	return struct {
		*bytes.Reader
		io.Closer
	}{bytes.NewReader(data), raw}, err
}

// newColdState returns a state whose runs are all cold.
func newColdState(t testing.TB, l journal.Lease, runs int) *machine.Machine {
	t.Helper()
	if _, err := WriteState(t.Context(), l, newState(t, runs), 1); err != nil {
		t.Fatal(err)
	}
	p := new(Paging)
	t.Cleanup(p.Close)
	m, err := p.ReadSnapshot(t.Context(), l, SnapshotName(1), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range m.All() {
		if !r.IsCold() {
			t.Fatalf("run %s is in memory", r.ID)
		}
	}
	return m
}

func TestColdRunsAreWrittenToTheNextSnapshot(t *testing.T) {
	t.Parallel()
	const runs = 3 * frameCache * FrameRuns
	l, seed := fileLease{newLease(t)}, maphash.MakeSeed()
	cold := newColdState(t, l, runs)
	if _, err := WriteState(t.Context(), l, cold, 2); err != nil {
		t.Fatal(err)
	}
	again, err := new(Paging).ReadSnapshot(t.Context(), l.Lease, SnapshotName(2), 1) // into memory
	if err != nil {
		t.Fatal(err)
	}
	want, err1 := newState(t, runs).Tally(seed)
	for name, m := range map[string]*machine.Machine{"cold": cold, "written again": again} {
		if got, err2 := m.Tally(seed); got != want || err1 != nil || err2 != nil {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, err2, want, err1)
		}
	}
}

// BenchmarkColdSnapshot measures writing a snapshot of runs that are cold.
func BenchmarkColdSnapshot(b *testing.B) {
	const runs = 50_000
	l := fileLease{newLease(b)}
	m := newColdState(b, l, runs)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := WriteState(b.Context(), l, m, 2); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*runs), "ns/run")
}

func TestASnapshotThatIsCutIsDamaged(t *testing.T) {
	t.Parallel()
	l, m := newLease(t), newState(t, 3)
	if _, err := WriteState(t.Context(), l, m, 1); err != nil {
		t.Fatal(err)
	}
	in, err := l.Get(t.Context(), SnapshotName(1))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(in)
	if err = errors.Join(err, in.Close()); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{2, len(data) / 2, len(data) - 1} {
		err := l.Put(context.Background(), SnapshotName(1), func(w io.Writer) error { _, err := w.Write(data[:n]); return err })
		if err != nil {
			t.Fatal(err)
		}
		if err := VerifySnapshot(t.Context(), l, SnapshotName(1)); !IsDamage(err) {
			t.Errorf("of %d bytes, %d: %v", len(data), n, err)
		}
	}
}

func TestArchiveBuffer(t *testing.T) {
	t.Parallel()
	l, m := newLease(t), newState(t, 3)
	var a ArchiveBuffer
	read := func(from func(func(*machine.Run) error) error) (ids []string) {
		t.Helper()
		if err := from(func(r *machine.Run) error { ids = append(ids, r.ID.String()); return nil }); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	unstored := func() []string { return read(func(yield func(*machine.Run) error) error { return a.Read(m, yield) }) }
	if got := unstored(); len(got) > 0 {
		t.Errorf("at first: %s, want none", strings.Join(got, " "))
	}
	runs := m.All()
	want := []string{runs[0].ID.String(), runs[1].ID.String(), runs[2].ID.String()}
	runs[0].Ended, runs[1].Ended, runs[2].Ended = 5, 9, 7
	a.Add(runs[0])
	a.Take() // it can't be stored
	a.Add(runs[1])
	a.Add(runs[2])
	if got := unstored(); !slices.Equal(got, want) {
		t.Errorf("before: %s, want %s", strings.Join(got, " "), strings.Join(want, " "))
	}
	archive, newest := a.Take()
	if newest != 9 {
		t.Errorf("the last run ended at %d, want 9", newest)
	}
	if err := PutArchive(t.Context(), l, ArchiveName(1, newest), archive); err != nil {
		t.Fatal(err)
	}
	a.Stored()
	got := read(func(yield func(*machine.Run) error) error {
		return ReadArchive(t.Context(), l, ArchiveName(1, 9), m, yield)
	})
	if !slices.Equal(got, want) || len(unstored()) > 0 {
		t.Errorf("stored: %s, want %s; left: %s", strings.Join(got, " "), strings.Join(want, " "), unstored())
	}
}
