package view

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
	"zombiezen.com/go/sqlite"
)

func TestReadsGoOnDuringWrites(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	all := fill(t, v, 150, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				var err error
				switch (i + n) % 4 {
				case 0:
					_, _, err = v.Get(ctx, all[n%len(all)].ID)
				case 1:
					_, err = v.List(ctx, Filter{States: []string{"queued", "running"}, Search: "order", Limit: 20})
				case 2:
					_, err = v.Groups(ctx, Filter{}, 5)
				case 3:
					_, err = v.Find(ctx, all[n%len(all)].ID[:8], 5)
				}
				if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrClosed) {
					t.Errorf("reading: %v", err)
				}
			}
		})
	}
	for n := range 3 {
		for i := range all {
			all[i].State = fmt.Sprint("state-", n)
		}
		write(t, v, all[:100]...)
		if _, err := v.Index(t.Context(), 50); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Expire(t.Context(), []string{"state-1"}, benchStart, 10); err != nil {
			t.Fatal(err)
		}
	}
	// Closing does not wait for readers to be done.
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	cancel()
	wg.Wait()
}

func TestNoGoroutineIsLeftBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 3 {
		v := openTest(t)
		fill(t, v, 50, 1)
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := v.List(ctx, Filter{Search: "order"}); err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := v.List(ctx, Filter{}); !errors.Is(err, context.Canceled) {
			t.Errorf("List(canceled) = %v", err)
		}
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
	}
	what := fmt.Sprintf("there are no more goroutines than before, which is %d", before)
	testwait.Until(t, what, func() bool { return runtime.NumGoroutine() <= before })
}

func TestEndOfContextInterruptsAQuery(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	fill(t, v, 60, 1)
	// real clock: the query never ends by itself
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := v.read(ctx, "count for ever", func(c *sqlite.Conn) error {
		_, err := queryInt(c, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n")
		return err
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read() = %v, want the end of the context", err)
	}
	if p, err := v.List(t.Context(), Filter{}); err != nil || len(p.Runs) != DefaultLimit {
		t.Errorf("List() afterwards = %d runs, %v", len(p.Runs), err)
	}
	canceled, stop := context.WithCancel(t.Context())
	stop()
	if err := v.Write(canceled, Batch{Cursor: 1 << 40}); !errors.Is(err, context.Canceled) || v.Cursor() == 1<<40 {
		t.Errorf("Write(canceled) = %v, cursor %d", err, v.Cursor())
	}
	write(t, v, named(1, func(*Run) {}))
}

func TestCursorDoesNotGoBack(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	for _, tt := range []struct {
		cursor uint64
		ok     bool
	}{{5, true}, {5, true}, {4, false}, {1 << 63, true}, {6, false}} {
		if err := v.Write(t.Context(), Batch{Cursor: tt.cursor}); (err == nil) != tt.ok {
			t.Errorf("Write(cursor %d) = %v", tt.cursor, err)
		}
	}
	if got := v.Cursor(); got != 1<<63 {
		t.Errorf("Cursor() = %d, want 1<<63", got)
	}
}

// TestHelperWriter is the process that TestKilledWriter kills.
func TestHelperWriter(t *testing.T) {
	path := os.Getenv("VIEW_TEST_WRITER")
	if path == "" {
		return
	}
	v, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for n := v.Cursor(); ; {
		n++
		put := make([]Run, 20)
		for i := range put {
			put[i] = named(int(n)*20+i, func(r *Run) { r.Attempts, r.Input = int(n), []byte("alpha beta") })
		}
		put = append(put, named(0, func(r *Run) { r.Attempts = int(n) }))
		if err := v.Write(t.Context(), Batch{Cursor: n, Put: put}); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Index(t.Context(), 15); err != nil {
			t.Fatal(err)
		}
		fmt.Println("wrote", n)
	}
}

func TestKilledWriterLeavesRowsAndCursorThatAgree(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "view.db")
	told := 0
	for round := range 3 {
		cmd := osexec.Command(os.Args[0], "-test.run=^TestHelperWriter$")
		cmd.Env = append(os.Environ(), "VIEW_TEST_WRITER="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 7+round && lines.Scan(); n++ {
			if _, err := fmt.Sscanf(lines.Text(), "wrote %d", &told); err != nil {
				t.Fatalf("the writer says %q", lines.Text())
			}
		}
		cmd.Process.Kill()
		cmd.Wait()
		checkKilled(t, path, told)
	}
}

// checkKilled checks that the view has all runs up to its cursor and no others, and that these include
// all runs that the writer reported.
func checkKilled(t *testing.T, path string, told int) {
	t.Helper()
	v, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	cursor := int(v.Cursor())
	if v.Rebuilt() != "" || cursor < told {
		t.Errorf("Rebuilt() = %q, Cursor() = %d, and the writer wrote %d", v.Rebuilt(), cursor, told)
	}
	runs := all(t, indexAll(t, v), Filter{Limit: 1000})
	if want := cursor*20 + 1; len(runs) != want || runs[want-1].Attempts != cursor {
		t.Errorf("%d runs, the first in batch %d, want %d in %d", len(runs), runs[len(runs)-1].Attempts, want, cursor)
	}
	if found := all(t, v, Filter{Limit: 1000, Search: "alpha"}); len(found) != cursor*20 {
		t.Errorf("a search finds %d runs, want %d", len(found), cursor*20)
	}
	integrity(t, v)
}

func indexAll(t *testing.T, v *View) *View {
	t.Helper()
	index(t, v)
	return v
}

func TestFileStaysFlatWhileRunsComeAndGo(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	live, rounds := 1000, 30
	if raceEnabled {
		live, rounds = 60, 6
	}
	var sizes []int64
	rnd := someSource()
	for round := range rounds {
		put := make([]Run, live/2)
		for i := range put {
			put[i] = finish(order(rnd, round*live/2+i, 1))
		}
		write(t, v, put...)
		index(t, v)
		if _, err := v.Expire(t.Context(), []string{"succeeded"}, put[0].Created.Add(-time.Duration(live/2)*time.Millisecond+time.Second), 1<<20); err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, settled(t, v))
	}
	third := rounds / 3
	if early, late := maxOf(sizes[third:2*third]), maxOf(sizes[2*third:]); late > early*5/4 {
		t.Errorf("the file grew from %d to %d bytes: %v", early, late, sizes)
	}
	if p, err := v.List(t.Context(), Filter{Limit: 1000}); err != nil || len(p.Runs) < live/2 || len(p.Runs) > live+live/2 {
		t.Errorf("%d runs are left, %v", len(p.Runs), err)
	}
	// When all runs are deleted, the file is small again.
	for {
		n, err := v.Expire(t.Context(), []string{"succeeded"}, benchStart.Add(time.Hour), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
	}
	integrity(t, v)
	if p, err := v.List(t.Context(), Filter{Search: "example"}); err != nil || len(p.Runs) != 0 {
		t.Errorf("a search still finds %d runs, %v", len(p.Runs), err)
	}
}

func maxOf(s []int64) (m int64) {
	for _, n := range s {
		m = max(m, n)
	}
	return m
}
