package journaltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/tideover/tideover/engine/journal"
)

var concurrencyTests = group[test]{"at once", []test{
	{"readers see no gap while entries are appended and cut off", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		const entries, kept = 200, 30
		var group sync.WaitGroup
		defer group.Wait()
		var reads []chan struct{}
		for range 2 {
			read := make(chan struct{}, 1)
			reads = append(reads, read)
			group.Go(func() {
				for range read {
					if err := readWhatIsThere(t.Context(), l); err != nil {
						t.Error(err)
						return
					}
				}
			})
			defer close(read)
		}
		for last := uint64(0); last < entries; last += 10 {
			for _, read := range reads { // while the next entries are appended
				select {
				case read <- struct{}{}:
				default: // it is still reading
				}
			}
			appendN(t, l, last, 10)
			if last%50 == 40 && last > kept {
				truncate(t, l, last-kept)
			}
		}
		first, last, err := l.Bounds(t.Context())
		if err != nil || last != entries {
			t.Fatalf("Bounds() = %d, %d, %v; want the last to be %d", first, last, err, entries)
		}
		wantEntries(t, l, first, last)
	})},
	{"blobs are put, read and deleted by several", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		var writers, reader sync.WaitGroup
		ended := make(chan struct{})
		for n := range 4 {
			writers.Go(func() {
				name := fmt.Sprintf("blob-%d", n%2)
				for range 6 {
					err := errors.Join(
						l.Put(t.Context(), name, writeText(name)),
						readBlob(t.Context(), l, name),
						l.Delete(t.Context(), name))
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		reader.Go(func() { // a blob is whole, or there is none
			for n := 0; !isClosed(ended); n++ {
				if err := readBlob(t.Context(), l, fmt.Sprintf("blob-%d", n%2)); err != nil {
					t.Error(err)
					return
				}
			}
		})
		appendN(t, l, 0, 20)
		writers.Wait()
		close(ended)
		reader.Wait()
		wantNames(t, l)
		wantEntries(t, l, 1, 20)
	})},
	{"a release in the middle of everything ends everything", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 20)
		var group sync.WaitGroup
		started := make(chan struct{}, 3)
		group.Go(func() {
			started <- struct{}{}
			for l.Put(t.Context(), "a", writeText("text")) == nil { //nolint:revive // until it fails
			}
		})
		group.Go(func() {
			started <- struct{}{}
			for readWhatIsThere(t.Context(), l) == nil && !isClosed(l.Lost()) { //nolint:revive // until it fails
			}
		})
		var acknowledged uint64 = 20
		group.Go(func() {
			started <- struct{}{}
			for {
				seq, err := appendEntry(t.Context(), l, acknowledged+1)
				if err != nil {
					if !errors.Is(err, journal.ErrStale) {
						t.Errorf("Append after the release = %v; want %v", err, journal.ErrStale)
					}
					return
				}
				acknowledged = seq
			}
		})
		for range cap(started) {
			<-started
		}
		release(t, l)
		group.Wait()
		wantEntries(t, f.lease(t), 1, acknowledged)
	})},
}}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// readWhatIsThere reads all entries. It is no error if entries are truncated meanwhile.
func readWhatIsThere(ctx context.Context, l journal.Lease) error {
	first, _, err := l.Bounds(ctx)
	if err != nil {
		return err
	}
	next, err := readAll(ctx, l, first)
	if err == nil {
		return nil
	}
	if now, _, boundsErr := l.Bounds(ctx); boundsErr == nil && next < now {
		return nil
	}
	return err
}

// readBlob reads a blob that another goroutine may delete.
func readBlob(ctx context.Context, l journal.Lease, name string) error {
	r, err := l.Get(ctx, name)
	if errors.Is(err, journal.ErrNoBlob) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	text := make([]byte, 100)
	n, err := r.Read(text)
	if string(text[:n]) != name {
		return fmt.Errorf("blob %s reads %q, %w", name, text[:n], err)
	}
	return nil
}
