package view

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// benchStart is when the runs of tests begin to be created.
var benchStart = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// order returns the n-th of many similar runs: a key of 12 bytes, an input of 200.
// A tenth has failed.
func order(rnd *rand.Rand, n int, perMilli int) Run {
	created := benchStart.Add(time.Duration(n) * time.Millisecond / time.Duration(perMilli))
	u := ulid{milli: created.UnixMilli()}
	for i := range u.rest {
		u.rest[i] = byte(rnd.Uint32())
	}
	r := Run{
		ID: u.String(), Workflow: []string{"ship-order", "bill-order", "send-mail"}[n%3], Key: fmt.Sprintf("order-%06d", n),
		State: "queued", Created: created, Updated: created, Step: "reserve",
		Input: fmt.Appendf(nil, `{"order":"ord_%08d","customer":"c-%06x","email":"user%d@example.com","amount":%d,"currency":"EUR","items":[{"sku":"A-%d","qty":%d}],"note":"please deliver to the back door in the morning`,
			n, rnd.IntN(1<<24), rnd.IntN(50000), rnd.IntN(100000), rnd.IntN(2000), rnd.IntN(9)),
	}
	for len(r.Input) < 198 {
		r.Input = append(r.Input, '.')
	}
	r.Input = append(r.Input, `"}`...)
	if n%10 == 0 {
		r.Error = fmt.Sprintf("post https://api.example.com/orders/%d: 503 after %dms", n, rnd.IntN(9000))
	}
	return r
}

// finish returns the run after it has ended.
func finish(r Run) Run {
	r.State, r.Attempts = "succeeded", 2
	r.Updated, r.Ended = r.Created.Add(time.Second), r.Created.Add(time.Second)
	return r
}

func openTest(tb testing.TB) *View {
	tb.Helper()
	v, err := Open(context.Background(), filepath.Join(tb.TempDir(), "view.db"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := v.Close(); err != nil {
			tb.Error(err)
		}
	})
	return v
}

func fill(tb testing.TB, v *View, n, perMilli int) []Run {
	tb.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	all := make([]Run, n)
	for i := range all {
		all[i] = order(rnd, i, perMilli)
	}
	for i := 0; i < n; i += 1000 {
		if err := v.Write(tb.Context(), Batch{Cursor: uint64(i + 1), Put: all[i:min(i+1000, n)]}); err != nil {
			tb.Fatal(err)
		}
	}
	return all
}

// settled returns the size of a view once its log is in the file.
func settled(tb testing.TB, v *View) int64 {
	tb.Helper()
	w := <-v.writing
	defer func() { v.writing <- w }()
	if err := exec(w.conn, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		tb.Fatal(err)
	}
	return size(v.path)
}

func someSource() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// size returns the bytes on disk of the view at a path.
func size(path string) (size int64) {
	for _, suffix := range [...]string{"", "-wal"} {
		if info, err := os.Stat(path + suffix); err == nil {
			size += info.Size()
		}
	}
	return size
}
