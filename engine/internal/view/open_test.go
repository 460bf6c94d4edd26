package view

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	exec := func(query string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for q := range strings.SplitSeq(query, ";") {
				if err := execAll(c, []string{q}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	write := func(offset int64, data string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt([]byte(data), offset); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := map[string]struct {
		harm    func(*testing.T, string)
		rebuilt string // a part of the reason
		aside   bool   // the file is kept
	}{
		"a sound file is opened as it was":       {func(*testing.T, string) {}, "", false},
		"a missing file is made":                 {func(_ *testing.T, p string) { os.Remove(p) }, "", false},
		"an empty file becomes a view":           {func(_ *testing.T, p string) { os.Truncate(p, 0) }, "", false},
		"an older version is replaced":           {exec("PRAGMA user_version=0"), "older version 0", false},
		"a newer version is replaced":            {exec("PRAGMA user_version=99"), "newer version 99", false},
		"another program's database is kept":     {exec("PRAGMA application_id=7"), "not a view", true},
		"a text file is kept":                    {write(0, strings.Repeat("notes\n", 100)), "not a view", true},
		"a file cut off in a page is replaced":   {func(_ *testing.T, p string) { os.Truncate(p, 9000) }, "damaged", false},
		"a file cut off in its header is kept":   {func(_ *testing.T, p string) { os.Truncate(p, 50) }, "damaged", true},
		"a lost table makes it damaged":          {exec("DROP TABLE names"), "damaged", false},
		"a lost column makes it damaged":         {exec("DROP INDEX runs_next;ALTER TABLE runs DROP COLUMN next"), "damaged", false},
		"a schema of garbage makes it damaged":   {write(100, strings.Repeat("\xde\xad", 4000)), "damaged", false},
		"a page of garbage is met while loading": {write(8192*2, strings.Repeat("\xde\xad", 100*4096)), "damaged", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "view.db")
			v, err := Open(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			fill(t, v, 30, 1)
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
			tt.harm(t, path)
			size := size(path)
			if v, err = Open(t.Context(), path); err != nil {
				t.Fatalf("Open() = %v", err)
			}
			defer v.Close()
			if got := v.Rebuilt(); !strings.Contains(got, tt.rebuilt) || (got == "") != (tt.rebuilt == "") {
				t.Errorf("Rebuilt() = %q, want %q", got, tt.rebuilt)
			}
			if _, err := os.Stat(path + ".aside"); (err == nil) != tt.aside {
				t.Errorf("a file is kept: %v, want %v", err == nil, tt.aside)
			}
			whole := tt.rebuilt == "" && size > 8192
			if whole != (v.Cursor() == 1) {
				t.Errorf("Cursor() = %d after a file of %d bytes", v.Cursor(), size)
			}
			want := fill(t, v, 10, 1)[0]
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
			if v, err = Open(t.Context(), path); err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			if got, _, err := v.Get(t.Context(), want.ID); err != nil || got.Workflow != want.Workflow {
				t.Errorf("Get() = a run of %q, %v, want one of %q", got.Workflow, err, want.Workflow)
			}
		})
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, path := range map[string]string{
		"the folder is missing": filepath.Join(dir, "no", "view.db"),
		"it is a folder":        dir,
	} {
		if v, err := Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: Open() = %v, %v, want an error with the path", name, v, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, filepath.Join(dir, "view.db")); !errors.Is(err, context.Canceled) {
		t.Errorf("Open(canceled) = %v", err)
	}
}

func TestFilesAreTheirOwnersAlone(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no modes")
	}
	v := openTest(t)
	fill(t, v, 10, 1)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(v.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o600 {
			t.Errorf("mode of view.db%s = %o, want 600", suffix, got)
		}
	}
}

func TestDamageMetLaterIsTold(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	all := fill(t, v, 600, 1)
	size := settled(t, v)
	f, err := os.OpenFile(v.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// The pages in the middle of the file belong to runs.
	if _, err := f.WriteAt([]byte(strings.Repeat("\xde\xad\xbe\xef", 20_000)), size/2/8192*8192); err != nil {
		t.Fatal(err)
	}
	var got error
	for i := range all {
		if _, _, err := v.Get(t.Context(), all[i].ID); err != nil {
			got = err
			break
		}
	}
	if !errors.Is(got, ErrDamaged) {
		t.Errorf("Get() of all runs = %v, want ErrDamaged", got)
	}
	if _, err := v.List(t.Context(), Filter{Order: Oldest, MinAttempts: 1}); !errors.Is(err, ErrDamaged) {
		t.Errorf("List() = %v, want ErrDamaged", err)
	}
}

func TestAViewOfBeforeGetsItsIndex(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	run := order(rand.New(rand.NewPCG(1, 2)), 1, 1)
	run.Attempts = 7
	write(t, v, run)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := sqlite.OpenConn(v.path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(execAll(c, []string{"DROP INDEX runs_many"}), c.Close(), os.Remove(v.path+sumSuffix)); err != nil {
		t.Fatal(err)
	}
	v, err = Open(t.Context(), v.path)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if p, err := v.List(t.Context(), Filter{MinAttempts: 5}); err != nil || len(p.Runs) != 1 || v.Rebuilt() != "" {
		t.Errorf("List() has %d runs, %v; rebuilt: %q", len(p.Runs), err, v.Rebuilt())
	}
}

func TestClosedViewSaysSo(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, _, get := v.Get(ctx, "x")
	_, list := v.List(ctx, Filter{})
	_, index := v.Index(ctx, 1)
	for i, err := range []error{v.Write(ctx, Batch{}), get, list, index} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("call %d = %v, want ErrClosed", i, err)
		}
	}
	if err := v.Close(); err != nil {
		t.Errorf("second Close() = %v", err)
	}
}

func TestFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	all := fill(t, v, 300, 1)
	limit := func(pages int64) {
		w := <-v.writing
		defer func() { v.writing <- w }()
		if _, err := queryInt(w.conn, fmt.Sprintf("PRAGMA max_page_count=%d", pages)); err != nil {
			t.Fatal(err)
		}
	}
	limit(1) // which SQLite takes for the number there are
	big := all[0]
	big.ID, big.Workflow, big.Input = "another", "new workflow", make([]byte, 1<<20)
	b := Batch{Cursor: 400, Put: []Run{big}}
	if err := v.Write(t.Context(), b); !errors.Is(err, ErrFull) {
		t.Fatalf("Write() = %v, want ErrFull", err)
	}
	if v.Cursor() != 1 {
		t.Errorf("Cursor() = %d, want 1", v.Cursor())
	}
	if p, err := v.List(t.Context(), Filter{Limit: 1000}); err != nil || len(p.Runs) != 300 {
		t.Errorf("List() = %d runs, %v, want 300", len(p.Runs), err)
	}
	limit(1 << 30)
	if err := v.Write(t.Context(), b); err != nil {
		t.Fatalf("Write() again = %v", err)
	}
	if r, ok, err := v.Get(t.Context(), "another"); err != nil || !ok || r.Workflow != "new workflow" || len(r.Input) != 1<<20 {
		t.Errorf("Get() = %v, %v", ok, err)
	}
}
