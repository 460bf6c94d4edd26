package jetstream

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// newName returns a new name for a cluster. Tests, and repeated runs of a test, share
// servers, so each needs a name of its own.
func newName() string { return "t-" + newMemberID() }

// openTest opens a log until the end of the test. If the configuration has no name, it
// creates a new cluster.
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
		log.Close() // tests that check the error of Close call it themselves
	})
	return log
}

// mustLease leases a shard. It tries again after a timeout, and while the others do not
// know yet that the last owner has released the shard.
func mustLease(t *testing.T, log *Log, shard int) (l *lease) {
	t.Helper()
	natstest.Wait(t, func(ctx context.Context) error {
		held, err := log.Lease(ctx, shard)
		if err != nil && !timedOut(err) && !errors.Is(err, journal.ErrLocked) {
			t.Fatal(err)
		}
		if err == nil {
			l = held.(*lease)
		}
		return err
	})
	return l
}

func release(t *testing.T, l *lease) {
	t.Helper()
	if err := l.Release(); err != nil && !timedOut(err) {
		t.Fatal(err)
	}
}

// timedOut reports whether an operation has failed because the machine or its servers
// are slow.
func timedOut(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// expel makes a member expel another one, as if it had been silent for the time silence.
func expel(t *testing.T, by *Log, id string, silence time.Duration) {
	t.Helper()
	natstest.Wait(t, func(context.Context) error {
		if !slices.Contains(by.Members(), id) {
			return fmt.Errorf("member %s is not known", id)
		}
		return nil
	})
	natstest.Wait(t, func(context.Context) error {
		if !slices.Contains(by.Members(), id) {
			return nil
		}
		makeSilent(by, id, silence)
		return fmt.Errorf("member %s is still in the cluster", id)
	})
}

// makeSilent changes what a member knows of another one: as if that had been silent for
// the time silence.
func makeSilent(to *Log, id string, silence time.Duration) {
	to.view.mu.Lock()
	defer to.view.mu.Unlock()
	if h, known := to.view.silence[id]; known {
		h.at = time.Now().Add(-silence)
		to.view.silence[id] = h
	}
	to.view.changes.announce(0)
}

// awaitSilent makes a member believe that its last heartbeat arrived the time silence
// ago, and waits until its lease has ended for that reason.
func awaitSilent(t *testing.T, log *Log, l *lease, silence time.Duration) {
	t.Helper()
	natstest.Wait(t, func(context.Context) error {
		member, view := log.member, log.view
		view.mu.Lock()
		member.mu.Lock()
		begun := time.Now().Add(-silence)
		member.heartbeat.last, view.read = begun, begun
		for id, h := range view.silence {
			view.silence[id] = heard{h.revision, begun}
		}
		member.mu.Unlock()
		view.mu.Unlock()
		member.wake()
		if isOpen(l.Lost()) {
			return errors.New("the lease has not ended")
		}
		return nil
	})
}

// memberRevision returns the revision of the member's record, which grows with its
// heartbeats.
func (l *Log) memberRevision() uint64 {
	l.member.mu.Lock()
	defer l.member.mu.Unlock()
	return l.member.revision
}

// awaitBeats waits until some heartbeats of a member have arrived.
func awaitBeats(t *testing.T, log *Log) {
	t.Helper()
	for range 3 {
		before := log.memberRevision()
		testwait.Until(t, "a heartbeat arrives", func() bool { return log.memberRevision() > before })
	}
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
		if err := appendData(t.Context(), l, n, testData(n)); err != nil {
			t.Fatal(err)
		}
	}
}

// appendData appends an entry, and repeats that after a timeout.
func appendData(ctx context.Context, l journal.Lease, n uint64, data []byte) error {
	for {
		_, err := l.Append(ctx, n-1, testID(n), data)
		if !timedOut(err) || ctx.Err() != nil {
			return err
		}
	}
}

// insist repeats an append until it succeeds, as an engine does.
func insist(t *testing.T, l journal.Lease, n uint64) {
	t.Helper()
	natstest.Wait(t, func(context.Context) error {
		err := tryAppend(t.Context(), l, n)
		if errors.Is(err, journal.ErrStale) || errors.Is(err, journal.ErrDamaged) {
			return retry.Permanent(err)
		}
		return err
	})
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

// wantErr checks that an error matches want, an error of package journal, and contains
// the texts.
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

// wantPlain checks that an error matches no error of package journal, so that callers
// try again, and contains the texts.
func wantPlain(t *testing.T, call string, err error, texts ...string) {
	t.Helper()
	for _, other := range []error{journal.ErrStale, journal.ErrDamaged, journal.ErrFull, journal.ErrLocked, journal.ErrNoBlob} {
		if errors.Is(err, other) {
			t.Fatalf("%s = %v; want a plain error", call, err)
		}
	}
	wantErr(t, call, err, nil, texts...)
}

func isOpen(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

// rawConn returns a connection to NATS that is not part of a log.
func rawConn(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.Timeout(time.Minute), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
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
