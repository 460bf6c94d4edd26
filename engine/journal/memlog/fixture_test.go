package memlog_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
)

func join(t *testing.T, s *memlog.Store, names ...string) (members []*memlog.Member) {
	t.Helper()
	for _, name := range names {
		m := s.Join(name)
		t.Cleanup(func() { m.Close() })
		members = append(members, m)
	}
	return members
}

func lease(t *testing.T, m *memlog.Member, shard int) journal.Shared {
	t.Helper()
	l, err := m.Lease(t.Context(), shard)
	if err != nil {
		t.Fatalf("%s: Lease(%d) = %v", m.Member(), shard, err)
	}
	return l.(journal.Shared)
}

func add(t *testing.T, l journal.Lease, expected uint64) {
	t.Helper()
	if err := tryAdd(t.Context(), l, expected); err != nil {
		t.Fatalf("Append(%d) = %v", expected, err)
	}
}

func tryAdd(ctx context.Context, l journal.Lease, expected uint64) error {
	_, err := l.Append(ctx, expected, journal.ID{byte(expected), byte(l.Epoch())}, []byte("text"))
	return err
}

func wantLocked(t *testing.T, m *memlog.Member, shard int) {
	t.Helper()
	if _, err := m.Lease(t.Context(), shard); !errors.Is(err, journal.ErrLocked) {
		t.Fatalf("%s: Lease(%d) = %v; want %v", m.Member(), shard, err, journal.ErrLocked)
	}
}

func wantStale(t *testing.T, l journal.Lease, expected uint64) {
	t.Helper()
	if err := tryAdd(t.Context(), l, expected); !errors.Is(err, journal.ErrStale) {
		t.Fatalf("Append(%d) = %v; want %v", expected, err, journal.ErrStale)
	}
}

func wantLost(t *testing.T, l journal.Lease, want bool) {
	t.Helper()
	select {
	case <-l.Lost():
		if !want {
			t.Fatal("the lease is lost")
		}
	default:
		if want {
			t.Fatal("the lease is not lost")
		}
	}
}

func wantAssigned(t *testing.T, m *memlog.Member, want int) {
	t.Helper()
	if shards, _ := m.Assigned(); len(shards) != want {
		t.Fatalf("%s: Assigned() = %d; want %d shards", m.Member(), shards, want)
	}
}

// echo answers at once with the request.
func echo(request []byte, reply func([]byte)) { reply(request) }
