package sqlitelog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine/journal"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// writeDatabase makes log.db by a script.
func writeDatabase(t *testing.T, dir, script string) {
	t.Helper()
	conn, err := sqlite.OpenConn(filepath.Join(dir, "log.db"), sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := sqlitex.ExecuteScript(conn, script, nil); err != nil {
		t.Fatal(err)
	}
}

// filled returns a folder with a log of some entries and a blob, not in use.
func filled(t *testing.T, entries, size int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	l := openTest(t, dir, OS)
	for n := range entries {
		mustAppend(t, l, uint64(n), bytes.Repeat([]byte{byte(n)}, size))
	}
	err := l.Put(t.Context(), "blob", func(w io.Writer) error {
		_, err := io.WriteString(w, "contents")
		return err
	})
	if err := errors.Join(err, l.Release()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestWhatIsNotOursIsRefused(t *testing.T) {
	for _, test := range []struct {
		name  string
		make  func(t *testing.T, dir string)
		want  error
		words []string
	}{
		{"a newer format", func(t *testing.T, dir string) {
			writeDatabase(t, dir, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = 7;", applicationID))
		}, journal.ErrNewer, []string{"format 7", "this tideover", "up to 1"}},
		{"a database of another program", func(t *testing.T, dir string) {
			writeDatabase(t, dir, "PRAGMA application_id = 77; CREATE TABLE t (x);")
		}, ErrForeign, []string{"another program", "0x4d"}},
		{"a database of a program without an id", func(t *testing.T, dir string) {
			writeDatabase(t, dir, "CREATE TABLE t (x);")
		}, ErrForeign, []string{"another program"}},
		{"a text", func(t *testing.T, dir string) {
			text := strings.Repeat("this is not a database\n", 100)
			if err := os.WriteFile(filepath.Join(dir, "log.db"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}, journal.ErrDamaged, []string{"not a database", "restore a backup"}},
		{"blobs without a log", func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, "blobs"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "blobs", "snapshot"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, journal.ErrDamaged, []string{"missing", "1 blobs"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			test.make(t, dir)
			before, _ := os.ReadFile(filepath.Join(dir, "log.db"))
			for range 2 { // it stays as it is, and the lock is given up
				err := leaseError(t, dir)
				if !errors.Is(err, test.want) {
					t.Fatalf("lease = %v; want %v", err, test.want)
				}
				for _, word := range append(test.words, filepath.Join(dir, "log.db")) {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("%q does not say %q", err, word)
					}
				}
			}
			if after, _ := os.ReadFile(filepath.Join(dir, "log.db")); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestACreationThatWasCutShortStartsOver(t *testing.T) {
	for name, script := range map[string]string{
		"an empty file":        "",
		"a file in WAL mode":   "PRAGMA journal_mode = WAL;",
		"a page and no tables": "CREATE TABLE t (x); DROP TABLE t;",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "log.db"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(script, "PRAGMA") {
				conn, err := sqlite.OpenConn(filepath.Join(dir, "log.db"), sqlite.OpenReadWrite)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(useWAL(conn), conn.Close()); err != nil {
					t.Fatal(err)
				}
			} else if script != "" {
				writeDatabase(t, dir, script)
			}
			mustAppend(t, openTest(t, dir, Full), 0, []byte("x"))
		})
	}
}

func TestDamageIsAnErrorAndNoPanic(t *testing.T) {
	dir := filled(t, 600, 1000)
	whole, err := os.ReadFile(filepath.Join(dir, "log.db"))
	if err != nil {
		t.Fatal(err)
	}
	middle := len(whole) / pageSize / 2 * pageSize
	broken := bytes.Clone(whole)
	for i := range 20 * pageSize {
		broken[middle+i] = 0xAA
	}
	if err := readDamaged(t, dir, broken); !errors.Is(err, journal.ErrDamaged) || !strings.Contains(err.Error(), "restore") {
		t.Errorf("overwritten pages: %v; want %v and what to do", err, journal.ErrDamaged)
	}
	if err := readDamaged(t, dir, whole[:middle]); !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("half of the file: %v; want %v", err, journal.ErrDamaged)
	}
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 0))
		broken := bytes.Clone(whole)
		for range 1 + r.IntN(2000) {
			broken[100+r.IntN(len(broken)-100)] = byte(r.Uint32())
		}
		err := readDamaged(t, dir, broken)
		if err != nil && !errors.Is(err, journal.ErrDamaged) && !errors.Is(err, ErrForeign) && !errors.Is(err, journal.ErrNewer) {
			t.Errorf("random damage with seed %d: %v; want %v", seed, err, journal.ErrDamaged)
		}
	}
}

// The first page has the schema, which SQLite reads as text.
func TestARefusedOpenOfADamagedFirstPageChangesNothing(t *testing.T) {
	dir := filled(t, 5, 100)
	path := filepath.Join(dir, "log.db")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	random, refused := rand.New(rand.NewPCG(seed, 0)), 0
	for range 150 {
		broken := bytes.Clone(whole)
		at := random.IntN(pageSize)
		broken[at] ^= 1 << random.IntN(8)
		if err := readDamaged(t, dir, broken); err == nil {
			continue
		}
		refused++
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, broken) {
			t.Errorf("seed %d: a bit at %d: the refused open has changed log.db: %v", seed, at, err)
		}
	}
	if refused == 0 {
		t.Error("no damage was refused")
	}
}

// readDamaged replaces the database and reads all of it.
func readDamaged(t *testing.T, dir string, database []byte) error {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "log.db"), database, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"log.db-wal", "log.db-shm"} {
		os.Remove(filepath.Join(dir, name))
	}
	log := newLog(t, dir)
	defer log.Close()
	l, err := log.Lease(t.Context(), 0)
	if err != nil {
		return err
	}
	for _, err := range l.Read(t.Context(), 1) {
		if err != nil {
			return err
		}
	}
	return nil
}
