package jetstream

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
)

// newName returns a name that no other test has, nor the same one when it is run
// again: they share servers.
func newName() string { return "t-" + newMemberID() }

// openTest opens a log until the end of the test, of a new cluster if none is named.
func openTest(t *testing.T, cfg Config) *Log {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = newName()
	}
	if cfg.Shards == 0 {
		cfg.Shards = 1
	}
	log := mustOpen(t, cfg)
	t.Cleanup(func() {
		log.Close() // tests that look at its error close it themselves
	})
	return log
}

func mustLease(t *testing.T, log *Log, shard int) *lease {
	t.Helper()
	l, err := log.Lease(t.Context(), shard)
	if err != nil {
		t.Fatal(err)
	}
	return l.(*lease)
}

func testID(n uint64) (id journal.ID) {
	binary.BigEndian.PutUint64(id[:], n)
	return id
}

func testData(n uint64) []byte { return fmt.Appendf(nil, "entry %d", n) }

func tryAppend(ctx context.Context, l journal.Lease, n uint64) error {
	_, err := l.Append(ctx, n-1, testID(n), testData(n))
	return err
}

// appendEntries appends the entries from one to another.
func appendEntries(t *testing.T, l journal.Lease, from, to uint64) {
	t.Helper()
	for n := from; n <= to; n++ {
		if err := tryAppend(t.Context(), l, n); err != nil {
			t.Fatal(err)
		}
	}
}

// insist repeats an append until it succeeds, as an owner does.
func insist(t *testing.T, l journal.Lease, n uint64) {
	t.Helper()
	natstest.Wait(t, func(context.Context) error { return tryAppend(t.Context(), l, n) })
}

// wantLog checks that the log has exactly the entries of appendEntries.
func wantLog(t *testing.T, l journal.Lease, first, last uint64) {
	t.Helper()
	gotFirst, gotLast, err := l.Bounds(t.Context())
	if err != nil || gotFirst != first || gotLast != last {
		t.Fatalf("Bounds() = %d, %d, %v; want %d, %d", gotFirst, gotLast, err, first, last)
	}
	next := first
	for e, err := range l.Read(t.Context(), first) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq != next || e.ID != testID(next) || !bytes.Equal(e.Data, testData(next)) {
			t.Fatalf("entry %d where %d is next, or its contents differ", e.Seq, next)
		}
		next++
	}
	if next != last+1 {
		t.Fatalf("reading ends at %d; want %d", next-1, last)
	}
}

// wantErr checks that an error is one of the journal's and says what it should.
func wantErr(t *testing.T, call string, err, want error, texts ...string) {
	t.Helper()
	if want != nil && !errors.Is(err, want) || err == nil {
		t.Fatalf("%s = %v; want %v", call, err, want)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s = %v; want it to say %q", call, err, text)
		}
	}
}

// wantPlain checks that an error is none of the journal's, so that it is tried again.
func wantPlain(t *testing.T, call string, err error, texts ...string) {
	t.Helper()
	for _, other := range []error{journal.ErrStale, journal.ErrDamaged, journal.ErrFull, journal.ErrLocked, journal.ErrNoBlob} {
		if errors.Is(err, other) {
			t.Fatalf("%s = %v; want a plain error", call, err)
		}
	}
	wantErr(t, call, err, nil, texts...)
}

// await waits for a channel.
func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatalf("%s: nothing happened for a minute", what)
	}
}

func isOpen(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

// rawConn is a connection of somebody else.
func rawConn(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func putBlob(t *testing.T, l journal.Lease, name, text string) {
	t.Helper()
	err := l.Put(t.Context(), name, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func readBlob(ctx context.Context, l journal.Lease, name string) (string, error) {
	r, err := l.Get(ctx, name)
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}

func wantBlob(t *testing.T, l journal.Lease, name, want string) {
	t.Helper()
	if got, err := readBlob(t.Context(), l, name); err != nil || got != want {
		t.Fatalf("Get(%q) reads %.40q, %v; want %.40q", name, got, err, want)
	}
}

func contextWithTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}
