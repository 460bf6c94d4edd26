package durable_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/tideover/tideover/contend"
	"github.com/tideover/tideover/engine/jetstream/natstest"
)

var (
	changes = flag.Int("contend.changes", 5, "changes of each writer")
	work    = flag.Duration("contend.work", 5*time.Millisecond, "time between the read and the write of an attempt")
)

// register is a number with a version, in a store. add makes one attempt to add one to it.
type register struct {
	add  func(context.Context) error // contend.Lost if another writer won
	read func(context.Context) (int, error)
}

// BenchmarkWriters measures writers that all change one value: a loop that waits 10 ms, the preset, the
// default, and the default with a Writer for each, as in processes of their own.
func BenchmarkWriters(b *testing.B) {
	for name, open := range map[string]func(*testing.B) func() register{"postgres": openPostgres, "sqlite": openSQLite, "jetstream": openJetStream} {
		b.Run(name, func(b *testing.B) {
			connect := open(b)
			for _, writers := range []int{5, 20, 100} {
				for _, name := range []string{"naive", "preset", "default", "apart"} {
					b.Run(fmt.Sprintf("%d/%s", writers, name), func(b *testing.B) { measureWriters(b, connect, writers, name) })
				}
			}
		})
	}
}

func measureWriters(b *testing.B, connect func() register, writers int, name string) {
	registers := make([]register, writers)
	for i := range registers {
		registers[i] = connect()
	}
	before, err := registers[0].read(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var attempts, done atomic.Int64
	var slowest atomic.Int64
	b.ResetTimer()
	start := time.Now()
	for range b.N {
		var all sync.WaitGroup
		shared := newLoop(name)
		for _, r := range registers {
			all.Go(func() {
				do := shared
				if name == "apart" {
					do = newLoop(name)
				}
				for range *changes {
					began := time.Now()
					err := do(b.Context(), func(ctx context.Context) error { attempts.Add(1); return r.add(ctx) })
					if took := int64(time.Since(began)); err == nil {
						done.Add(1)
						for old := slowest.Load(); took > old && !slowest.CompareAndSwap(old, took); old = slowest.Load() {
						}
					} else if !errors.Is(err, contend.ErrRetries) && !errors.Is(err, contend.ErrTimeout) {
						b.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
	took := time.Since(start)
	if after, err := registers[0].read(context.Background()); err != nil || after-before != int(done.Load()) {
		b.Errorf("%d changes in the store, %d were acknowledged: %v", after-before, done.Load(), err)
	}
	all := float64(b.N * writers * *changes)
	b.ReportMetric(100*float64(done.Load())/all, "%done")
	b.ReportMetric(float64(done.Load())/took.Seconds(), "changes/s")
	b.ReportMetric(float64(attempts.Load())/float64(done.Load()), "attempts/change")
	b.ReportMetric(float64(slowest.Load())/1e6, "slowest-ms")
	b.ReportMetric(0, "ns/op")
}

// loop makes one change, with as many attempts as it takes.
type loop func(ctx context.Context, add func(context.Context) error) error

// newLoop returns a loop by its name.
func newLoop(name string) loop {
	switch name {
	case "naive":
		return func(ctx context.Context, add func(context.Context) error) error {
			for {
				err := add(ctx)
				if _, lost := errors.AsType[*contend.ConflictError](err); !lost {
					return err
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	case "preset":
		return proposals(contend.Must("contention"))
	default:
		return proposals(contend.Must(contend.Config{}))
	}
}

func proposals(w *contend.Writer) loop {
	return func(ctx context.Context, add func(context.Context) error) error {
		return w.Do(ctx, func(ctx context.Context, _ contend.Try) error { return add(ctx) })
	}
}

func openPostgres(b *testing.B) func() register {
	address := os.Getenv("DURABLE_POSTGRES")
	if address == "" {
		b.Skip("DURABLE_POSTGRES is not set: make bench-contend starts a server")
	}
	pool, err := pgxpool.New(b.Context(), address+" pool_max_conns=90")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if _, err := pool.Exec(b.Context(), "DROP TABLE IF EXISTS contend; CREATE TABLE contend (version bigint); INSERT INTO contend VALUES (0)"); err != nil {
		b.Fatal(err)
	}
	read := func(ctx context.Context) (n int, err error) {
		err = pool.QueryRow(ctx, "SELECT version FROM contend").Scan(&n)
		return n, err
	}
	add := func(ctx context.Context) error {
		n, err := read(ctx)
		if err != nil {
			return err
		}
		time.Sleep(*work)
		tag, err := pool.Exec(ctx, "UPDATE contend SET version = $1 + 1 WHERE version = $1", n)
		if err == nil && tag.RowsAffected() == 0 {
			return contend.Lost(nil, nil)
		}
		return err
	}
	return func() register { return register{add, read} }
}

func openSQLite(b *testing.B) func() register {
	path := filepath.Join(b.TempDir(), "contend.db")
	connect := func() *sqlite.Conn {
		conn, err := sqlite.OpenConn(path)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		conn.SetBusyTimeout(time.Minute)
		return conn
	}
	if err := sqlitex.ExecuteScript(connect(), "CREATE TABLE contend (version); INSERT INTO contend VALUES (0)", nil); err != nil {
		b.Fatal(err)
	}
	return func() register {
		conn := connect()
		read := func(context.Context) (n int, err error) {
			err = sqlitex.Execute(conn, "SELECT version FROM contend", &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error { n = s.ColumnInt(0); return nil }})
			return n, err
		}
		return register{func(ctx context.Context) error {
			n, err := read(ctx)
			if err == nil {
				time.Sleep(*work)
				err = sqlitex.Execute(conn, "UPDATE contend SET version = ?1 + 1 WHERE version = ?1", &sqlitex.ExecOptions{Args: []any{n}})
			}
			if err == nil && conn.Changes() == 0 {
				return contend.Lost(nil, nil)
			}
			return err
		}, read}
	}
}

func openJetStream(b *testing.B) func() register {
	cluster := natstest.Start(b, 1)
	nc, err := nats.Connect(cluster.URL())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		b.Fatal(err)
	}
	bucket, err := js.CreateKeyValue(b.Context(), jetstream.KeyValueConfig{Bucket: "contend"})
	if err == nil {
		_, err = bucket.Put(b.Context(), "n", []byte("0"))
	}
	if err != nil {
		b.Fatal(err)
	}
	read := func(ctx context.Context) (int, error) {
		e, err := bucket.Get(ctx, "n")
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(string(e.Value()))
	}
	add := func(ctx context.Context) error {
		e, err := bucket.Get(ctx, "n")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(e.Value()))
		if err != nil {
			return err
		}
		time.Sleep(*work)
		if _, err = bucket.Update(ctx, "n", []byte(strconv.Itoa(n+1)), e.Revision()); errors.Is(err, jetstream.ErrKeyExists) {
			return contend.Lost(nil, err)
		}
		return err
	}
	return func() register { return register{add, read} }
}
