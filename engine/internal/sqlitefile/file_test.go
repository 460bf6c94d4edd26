package sqlitefile_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/tideover/tideover/engine/internal/sqlitefile"
)

// row is a row of the table t.
type row struct {
	number int64
	data   []byte
}

// change executes random statements, and returns the rows that SQLite reads afterwards.
func change(t *testing.T, conn *sqlite.Conn, random *rand.Rand) (rows []row) {
	t.Helper()
	for range random.IntN(80) {
		data := make([]byte, int(math.Exp(random.Float64()*10)))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		var err error
		if number := random.Int64N(3000) - 100; random.IntN(4) > 0 {
			err = sqlitex.Execute(conn, "INSERT OR REPLACE INTO t VALUES (?1, ?2, ?3)", &sqlitex.ExecOptions{Args: []any{number, number * 7, data}})
		} else {
			err = sqlitex.Execute(conn, "DELETE FROM t WHERE n BETWEEN ?1 AND ?1 + 50", &sqlitex.ExecOptions{Args: []any{number}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	err := sqlitex.Execute(conn, "SELECT n, d FROM t ORDER BY n", &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		data := make([]byte, s.ColumnLen(1))
		s.ColumnBytes(1, data)
		rows = append(rows, row{s.ColumnInt64(0), data})
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// read returns the rows that the package reads.
func read(path string, from int64) (rows []row, err error) {
	f, err := sqlitefile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	err = f.Rows("t", from, func(number int64, columns []sqlitefile.Value) error {
		if len(columns) != 3 || columns[1].Int != number*7 {
			return fmt.Errorf("row %d has %v", number, columns[:2])
		}
		rows = append(rows, row{number, bytes.Clone(columns[2].Bytes)})
		return nil
	})
	if err != nil {
		return rows, err
	}
	first, last, ok, err := f.Ends("t")
	if err == nil && from == math.MinInt64 && (ok != (len(rows) > 0) || ok && (first != rows[0].number || last != rows[len(rows)-1].number)) {
		err = fmt.Errorf("Ends() = %d, %d, %v", first, last, ok)
	}
	return rows, err
}

func open(t *testing.T, path string) *sqlite.Conn {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// create creates the table t.
func create(t *testing.T, conn *sqlite.Conn, page int) {
	t.Helper()
	for _, statement := range []string{
		fmt.Sprintf("PRAGMA page_size=%d", page), "PRAGMA auto_vacuum=INCREMENTAL", "PRAGMA journal_mode=WAL",
		"PRAGMA wal_autocheckpoint=0", "PRAGMA synchronous=OFF", "CREATE TABLE t (n INTEGER PRIMARY KEY, m INTEGER, d BLOB)",
	} {
		if err := sqlitex.ExecuteTransient(conn, statement, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func same(a, b []row) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].number != b[i].number || !bytes.Equal(a[i].data, b[i].data) {
			return false
		}
	}
	return true
}

// The package reads what SQLite reads, with and without a write-ahead log, and with rows of any size.
func TestItReadsWhatSQLiteReads(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 0))
		path := filepath.Join(t.TempDir(), "t.db")
		conn := open(t, path)
		create(t, conn, 512<<random.IntN(6))
		for step := range 12 {
			want := change(t, conn, random)
			got, err := read(path, math.MinInt64)
			if err != nil || !same(got, want) {
				t.Fatalf("seed %d, step %d: %d rows, %v; want %d", seed, step, len(got), err, len(want))
			}
			if from := random.Int64N(3000); len(want) > 0 {
				got, err := read(path, from)
				for len(want) > 0 && want[0].number < from {
					want = want[1:]
				}
				if err != nil || !same(got, want) {
					t.Fatalf("seed %d, step %d: %d rows from %d on, %v; want %d", seed, step, len(got), from, err, len(want))
				}
			}
			if random.IntN(3) == 0 {
				if err := sqlitex.ExecuteTransient(conn, "PRAGMA wal_checkpoint(RESTART)", nil); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// Damage of any kind is an error or other rows, but no panic and no endless loop.
func FuzzDamage(f *testing.F) {
	f.Add(uint16(0), uint32(100), byte(1))
	f.Add(uint16(1), uint32(5000), byte(255))
	f.Fuzz(func(t *testing.T, seed uint16, at uint32, mask byte) {
		path := filepath.Join(t.TempDir(), "t.db")
		conn := open(t, path)
		create(t, conn, 512)
		random := rand.New(rand.NewPCG(uint64(seed), 1))
		change(t, conn, random)
		for _, name := range []string{path, path + "-wal"} {
			data, err := os.ReadFile(name)
			if err != nil || len(data) == 0 {
				continue
			}
			data[int(at)%len(data)] ^= mask
			copied := filepath.Join(t.TempDir(), "copy.db")
			for suffix, content := range map[string]string{"": path, "-wal": path + "-wal"} {
				text, err := os.ReadFile(content)
				if content == name {
					text = data
				}
				if err == nil {
					err = os.WriteFile(copied+suffix, text, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			_, _ = read(copied, math.MinInt64)
			if f, err := sqlitefile.Open(copied); err == nil {
				if other := f.BeyondDamage(); other != nil {
					_, _ = other.Tables()
				}
				f.Close()
			}
		}
	})
}
