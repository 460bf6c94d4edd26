package output

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var quiet = slog.New(slog.DiscardHandler)

func newStore(t *testing.T, dir string, limit int64) *Store {
	t.Helper()
	s := New(Config{Dir: dir, Limit: limit, Logger: quiet})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// attempt returns the name of the n-th attempt of a test. Each run has three.
func attempt(n int) Attempt {
	return Attempt{Run: fmt.Sprintf("run-%d", n/3), Step: "step", Number: n%3 + 1}
}

// record returns an output with this text on stdout.
func record(n int, text string) *Record {
	c := &Capture{Limit: 64 << 10}
	_, _ = c.Write([]byte(text))
	return &Record{Attempt: attempt(n), Ended: time.Now(), Exit: &n, Streams: []Stream{c.Stream("stdout")}}
}

func add(t *testing.T, s *Store, r *Record) {
	t.Helper()
	if err := s.Append(r); err != nil {
		t.Fatal(err)
	}
}

// wantText checks the stdout of the n-th attempt.
func wantText(t *testing.T, s *Store, n int, want string) {
	t.Helper()
	r, err := s.Get(attempt(n))
	if err != nil {
		t.Errorf("Get(%v): %v", attempt(n), err)
		return
	}
	if got := string(r.Streams[0].Head) + string(r.Streams[0].Tail); got != want || *r.Exit != n {
		t.Errorf("Get(%v) = %.60q, exit %d, want %.60q", attempt(n), got, *r.Exit, want)
	}
}

func wantNone(t *testing.T, s *Store, n int) {
	t.Helper()
	if r, err := s.Get(attempt(n)); !errors.Is(err, ErrNotStored) {
		t.Errorf("Get(%v) = %v, %v, want none", attempt(n), r, err)
	}
}

// filesOf returns the size of all files in a folder, and their number.
func filesOf(t *testing.T, dir string) (size int64, count int) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %v, want 0600", f.Name(), info.Mode())
		}
	}
	return size, len(files)
}

func TestOutputsAreKeptAfterARestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "outputs")
	s := newStore(t, dir, 1<<20)
	texts := []string{"", "hello\n", "\x00\xff\xfe binary \x80", strings.Repeat("x", 64<<10)}
	for i := range 12 {
		add(t, s, record(i, texts[i%4]))
	}
	for restart := range 3 {
		for i := range 12 {
			wantText(t, s, i, texts[i%4])
		}
		wantNone(t, s, 99)
		if got := s.Usage().Records; got != 12 && restart > 0 {
			t.Errorf("after restart %d: %d records", restart, got)
		}
		_ = s.Close()
		s = newStore(t, dir, 1<<20)
		wantText(t, s, 1, texts[1])
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v, %v, want the mode 0700", info.Mode(), err)
	}
	list, err := s.Ends("run-0", 3)
	if err != nil || len(list) != 3 || string(list[1].Streams[0].Tail) != "lo\n" || list[1].Streams[0].Size != 6 || list[2].Number != 3 {
		t.Errorf("Ends = %+v, %v", list, err)
	}
}

func TestTenThousandOutputsStayWithinTheLimit(t *testing.T) {
	t.Parallel()
	const limit, all = 4 << 20, 10_000
	dir := t.TempDir()
	s := newStore(t, dir, limit)
	random := rand.New(rand.NewPCG(5, 6))
	text := func(n int) string { return strings.Repeat("y", n%7*400) }
	for i := range all {
		add(t, s, record(i, text(i)))
		if i%500 == 0 || random.IntN(100) == 0 {
			if size, count := filesOf(t, dir); size > limit || count > 2*(parts+2) {
				t.Fatalf("after %d outputs: %d bytes in %d files, want at most %d bytes", i, size, count, limit)
			}
		}
		if random.IntN(2000) == 0 {
			_ = s.Close()
			s = newStore(t, dir, limit)
		}
	}
	u := s.Usage()
	if u.Records < 1500 || u.Bytes < limit*9/10 {
		t.Errorf("%d records with %d bytes are left, want about %d bytes", u.Records, u.Bytes, limit)
	}
	for i := range all {
		if first := all - u.Records; i%20 != 0 && i != first && i != first-1 {
			continue
		}
		if i < all-u.Records {
			wantNone(t, s, i) // the oldest are removed first
		} else {
			wantText(t, s, i, text(i))
		}
	}
	if err := s.Append(record(1, "")); err != nil {
		t.Error(err)
	}
	small := newStore(t, dir, limit/4) // the limit in the configuration became smaller
	wantText(t, small, all-1, text(all-1))
	if size, _ := filesOf(t, dir); size > limit/4 {
		t.Errorf("with a smaller limit: %d bytes, want at most %d", size, limit/4)
	}
}

func TestAnOutputThatIsLargerThanTheLimit(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir(), 10_000)
	add(t, s, record(0, "small"))
	if err := s.Append(record(1, strings.Repeat("x", 20_000))); err == nil {
		t.Error("it was stored")
	}
	wantText(t, s, 0, "small")
}

func TestRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := newStore(t, dir, 1<<20)
		ctx := t.Context()
		go s.Run(ctx)
		const days = 24 * time.Hour
		for i := range 20 {
			add(t, s, record(i, "text"))
			time.Sleep(days)
		}
		for i := range 20 { // the output i is 20-i days old
			switch age := time.Duration(20-i) * days; {
			case age <= DefaultRetention:
				wantText(t, s, i, "text")
			case age > DefaultRetention*17/16+days:
				wantNone(t, s, i)
			}
		}
		if _, count := filesOf(t, dir); count > 2*(periods+2) {
			t.Errorf("%d files", count)
		}
		time.Sleep(16 * days) // without new outputs
		synctest.Wait()
		if size, count := filesOf(t, dir); size != 0 || count != 0 {
			t.Errorf("all outputs are old: %d bytes in %d files, want none", size, count)
		}
		add(t, s, record(21, "again"))
		wantText(t, s, 21, "again")
	})
}

// The process is killed, or the machine loses its power, while a record is written: the file ends
// anywhere, or has a part that was never written.
func TestATornFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newStore(t, dir, 1<<20)
	for i := range 4 {
		add(t, s, record(i, strings.Repeat(fmt.Sprint(i), 9)))
	}
	_ = s.Close()
	path := filepath.Join(dir, "00000000"+segmentExt)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ends := []int{segmentHead}
	for _, e := range s.list[0].entries[1:] {
		ends = append(ends, int(e.offset))
	}
	ends = append(ends, len(whole))
	for cut := range whole {
		for _, zeros := range []bool{false, true} { // cut off, or a part of zeros in the middle
			torn := bytes.Clone(whole[:cut])
			if zeros {
				torn = append(torn, make([]byte, min(40, len(whole)-cut))...)
				torn = append(torn, whole[len(torn):]...)
			}
			if err := os.WriteFile(path, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			s := newStore(t, dir, 1<<20)
			for i := range 4 {
				switch begin, end := ends[i], ends[i+1]; {
				case cut < segmentHead: // the mark is lost
				case end <= cut, zeros && cut+40 <= begin:
					wantText(t, s, i, strings.Repeat(fmt.Sprint(i), 9))
				}
			}
			add(t, s, record(9, "new"))
			wantText(t, s, 9, "new")
			_ = s.Close()
			s = newStore(t, dir, 1<<20)
			wantText(t, s, 9, "new")
			_ = s.Close()
			for _, seg := range s.list {
				_ = seg.remove()
			}
			if t.Failed() {
				t.Fatalf("cut at %d, zeros %v", cut, zeros)
			}
		}
	}
}

func TestADamagedIndexIsWrittenAgain(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string, b []byte) error{
		"missing": func(path string, _ []byte) error { return os.Remove(path) },
		"short":   func(path string, b []byte) error { return os.WriteFile(path, b[:len(b)-5], 0o600) },
		"head":    func(path string, b []byte) error { b[20]++; return os.WriteFile(path, b, 0o600) },
		"entries": func(path string, b []byte) error { clear(b[indexHead:]); return os.WriteFile(path, b, 0o600) },
		"orphan": func(path string, b []byte) error {
			return os.WriteFile(filepath.Join(filepath.Dir(path), "99999999.idx"), b, 0o600)
		},
	} {
		dir := t.TempDir()
		s := newStore(t, dir, 1<<20)
		for i := range 40 {
			add(t, s, record(i, strings.Repeat("z", 10_000)))
		}
		_ = s.Close()
		path := filepath.Join(dir, "00000001"+indexExt)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := damage(path, b); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			s = newStore(t, dir, 1<<20)
			for i := range 40 {
				wantText(t, s, i, strings.Repeat("z", 10_000))
			}
			_ = s.Close()
		}
		if _, err := os.Stat(filepath.Join(dir, "99999999.idx")); err == nil {
			t.Error("an index without a segment is kept")
		}
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

func TestFailedWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newStore(t, dir, 1<<20)
	add(t, s, record(0, "before"))
	for room := range 300 {
		s.write = func(f *os.File, p []byte, at int64) (int, error) { // a disk with room for a part of the record
			n, _ := f.WriteAt(p[:min(room, len(p))], at)
			return n, syscall.ENOSPC
		}
		n := 3 + room
		if err := s.Append(record(n, strings.Repeat("x", 400))); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("Append = %v, want ENOSPC", err)
		}
		if failed, err := s.Problem(); failed != 1 || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("Problem = %d, %v", failed, err)
		}
		if _, err := s.Get(attempt(n)); !errors.Is(err, ErrNotStored) || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("Get = %v, want the reason", err)
		}
		if room%7 == 0 { // the process ends before there is room again
			_ = s.Close()
			s = newStore(t, dir, 1<<20)
		}
		s.write = (*os.File).WriteAt
		add(t, s, record(1000+n, "after"))
		if failed, err := s.Problem(); failed != 0 || err != nil {
			t.Fatalf("Problem after a write = %d, %v", failed, err)
		}
		wantText(t, s, 0, "before")
		wantText(t, s, 1000+n, "after")
	}
	if len(s.lost) > knownLost {
		t.Errorf("%d lost outputs are remembered", len(s.lost))
	}
}

func TestAFolderThatCantBeUsed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "outputs")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, dir, 1<<20)
	if err := s.Append(record(0, "text")); err == nil {
		t.Error("it was stored in a file")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	add(t, s, record(0, "text"))
	wantText(t, s, 0, "text")
	if err := os.RemoveAll(dir); err != nil { // a user removes the folder
		t.Fatal(err)
	}
	add(t, s, record(1, "more"))
	wantText(t, s, 1, "more")
	wantNone(t, s, 5)
}

func TestAttemptsAtOnce(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir(), 1<<20)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 50 {
				n := w*50 + i
				if err := s.Append(record(n, strings.Repeat("w", 2000))); err != nil {
					t.Error(err)
				}
				wantText(t, s, n, strings.Repeat("w", 2000))
			}
		})
	}
	all.Wait()
}

// A command writes the bytes of a record of another run. They must not count after the file is damaged.
func TestAForgedRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	forged, err := record(0, "forged").encode([markSize]byte{})
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t, dir, 1<<20)
	add(t, s, record(3, string(forged)))
	_ = s.Close()
	path := filepath.Join(dir, "00000000"+segmentExt)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[segmentHead+headSize]++ // damages the record around it
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s = newStore(t, dir, 1<<20)
	wantNone(t, s, 0)
	wantNone(t, s, 3)
}

func FuzzScan(f *testing.F) {
	s := &segment{mark: [markSize]byte{1, 2, 3, 4, 5, 6, 7, 8}}
	r, err := record(1, "text").encode(s.mark)
	if err != nil {
		f.Fatal(err)
	}
	head := append([]byte(segmentMagic), s.mark[:]...)
	f.Add(append(head, r...))
	f.Add(append(append(head, r[:9]...), r...))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "00000000"+segmentExt), data, 0o600); err != nil {
			t.Fatal(err)
		}
		s := newStore(t, dir, 1<<20)
		if err := s.Append(record(7, "new")); err != nil {
			t.Fatal(err)
		}
		wantText(t, s, 7, "new")
		if _, err := s.Ends("run-0", 10); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := New(Config{Dir: b.TempDir(), Limit: 256 << 20, Logger: quiet})
			defer s.Close()
			r := record(1, strings.Repeat("x", size))
			for b.Loop() {
				if err := s.Append(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	s := New(Config{Dir: b.TempDir(), Limit: 64 << 20, Logger: quiet})
	defer s.Close()
	for i := range 300_000 {
		if err := s.Append(record(i, "hello")); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := s.Get(attempt(299_000)); err != nil {
			b.Fatal(err)
		}
	}
}

// TestExpireAfterAnEmptySegment removes old outputs behind a segment whose first write failed.
func TestExpireAfterAnEmptySegment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, t.TempDir(), 10<<20)
		whole := s.write
		s.write = func(f *os.File, p []byte, at int64) (int, error) {
			_ = f.Close() // so that it can't be truncated
			return 5, syscall.ENOSPC
		}
		if s.Append(record(0, "lost")) == nil {
			t.Fatal("the write did not fail")
		}
		s.write = whole
		add(t, s, record(1, "old"))
		time.Sleep(2 * DefaultRetention)
		add(t, s, record(4, "new"))
		wantNone(t, s, 1)
		wantText(t, s, 4, "new")
	})
}

// TestOutputsOfOperationsWithTheSameName stores the outputs of an operation that was called again.
func TestOutputsOfOperationsWithTheSameName(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir(), 10<<20)
	for i, op := range []int{0, 3, 7} {
		r := record(1, fmt.Sprintf("operation %d", op))
		r.Attempt = Attempt{Run: "run", Step: "step", Number: 1, Operation: op}
		r.Exit = &i
		add(t, s, r)
	}
	for op, want := range map[int]string{3: "operation 3", 7: "operation 7", 0: "operation 7"} {
		for _, number := range []int{0, 1} {
			r, err := s.Get(Attempt{Run: "run", Step: "step", Number: number, Operation: op})
			if err != nil || string(r.Streams[0].Head) != want {
				t.Errorf("operation %d, attempt %d: %+v, %v, want %s", op, number, r, err, want)
			}
		}
	}
	if _, err := s.Get(Attempt{Run: "run", Step: "step", Number: 1, Operation: 5}); !errors.Is(err, ErrNotStored) {
		t.Errorf("an operation without an output: %v", err)
	}
}
