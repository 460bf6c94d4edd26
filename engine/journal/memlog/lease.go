package memlog

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
)

// lease is the right to record in a shard.
type lease struct {
	member *Member
	number int // number of the shard
	shard  *shard
	epoch  uint64
	server *server // answers requests to the shard

	lost chan struct{} // closed when the owner knows that the lease has ended
}

var (
	_ journal.Shared  = (*shared)(nil)
	_ journal.Clocked = (*shared)(nil)
)

// Lease implements [journal.Log]. The lease of a member of the cluster is a [journal.Shared].
func (m *Member) Lease(ctx context.Context, number int) (journal.Lease, error) {
	f, unlock, err := m.begin(ctx, Operation{Name: "lease", Shard: number})
	if err != nil {
		return nil, err
	}
	defer unlock()
	s, err := m.store.shard(number)
	if err != nil {
		return nil, err
	}
	if s.owner != nil {
		return nil, fmt.Errorf("memlog: %w", journal.ErrLocked)
	}
	s.epoch++
	if f.After != nil {
		return nil, f.After // the caller does not know of the lease, so it ends at once
	}
	l := &lease{member: m, number: number, shard: s, epoch: s.epoch, server: newServer(m), lost: make(chan struct{})}
	s.owner = l
	m.leases[l] = true
	if m.id == "" {
		return l, nil
	}
	return shared{l}, nil
}

func (l *lease) Epoch() uint64         { return l.epoch }
func (l *lease) Lost() <-chan struct{} { return l.lost }

// Release ends the lease. If the process can't reach the store, the shard becomes free
// when the process is connected again or counts as dead.
func (l *lease) Release() error {
	unlock, err := l.member.lock(context.Background())
	if err != nil {
		return err
	}
	defer unlock()
	if isClosed(l.lost) {
		return nil
	}
	l.lose()
	if l.member.cut {
		return fmt.Errorf("memlog: release shard %d: %w", l.number, errCut)
	}
	l.free()
	return nil
}

// lose ends the lease for the owner: it closes Lost, and serves no more requests.
func (l *lease) lose() {
	if !isClosed(l.lost) {
		close(l.lost)
	}
	l.server.answer = nil
}

// free ends the lease for the store, so that others can lease the shard.
func (l *lease) free() {
	delete(l.member.leases, l)
	if l.shard.owner == l {
		l.shard.owner = nil
	}
	l.server.stop()
}

// use locks the store, if the lease is valid. The caller must call unlock.
func (l *lease) use(ctx context.Context) (unlock func(), err error) {
	unlock, err = l.member.lock(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case l.epoch == 0: // it only reads
		err = l.member.reach()
	case isClosed(l.lost) || l.shard.owner != l:
		err = fmt.Errorf("memlog: %w: the lease of shard %d with epoch %d has ended", journal.ErrStale, l.number, l.epoch)
	case l.member.cut:
		err = errCut
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// do runs an operation on the shard under the lease, with the fault that the function of
// [Member.Disturb] returns for it.
func do[T any](ctx context.Context, l *lease, name string, operation func(*shard) (T, error)) (result T, err error) {
	f, err := l.member.suffer(ctx, Operation{Name: name, Shard: l.number})
	if err != nil {
		return result, err
	}
	unlock, err := l.use(ctx)
	if err != nil {
		return result, err
	}
	defer unlock()
	if f.After != nil && f.Late > 0 {
		time.AfterFunc(f.Late, func() {
			l.member.store.mu.Lock()
			defer l.member.store.mu.Unlock()
			_, _ = operation(l.shard) // the caller has got f.After as the result
		})
		return result, f.After
	}
	done, err := operation(l.shard)
	if f.After != nil {
		return result, f.After
	}
	return done, err
}

func (l *lease) Bounds(ctx context.Context) (first, last uint64, err error) {
	b, err := do(ctx, l, "bounds", (*shard).bounds)
	return b[0], b[1], err
}

func (l *lease) Append(ctx context.Context, expected uint64, id journal.ID, data []byte) (uint64, error) {
	if len(data) > journal.MaxEntry {
		return 0, fmt.Errorf("memlog: %w: %d bytes", journal.ErrTooLarge, len(data))
	}
	data = bytes.Clone(data)
	return do(ctx, l, "append", func(s *shard) (uint64, error) { return s.append(l.epoch, expected, id, data) })
}

func (l *lease) Read(ctx context.Context, from uint64) iter.Seq2[journal.Entry, error] {
	list, err := do(ctx, l, "read", func(s *shard) ([]journal.Entry, error) { return s.from(from) })
	return func(yield func(journal.Entry, error) bool) {
		for _, e := range list {
			var unlock func()
			if unlock, err = l.use(ctx); err != nil {
				break
			}
			if unlock(); !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(journal.Entry{}, err)
		}
	}
}

func (l *lease) Truncate(ctx context.Context, below uint64) error {
	return change(ctx, l, "truncate", func(s *shard) { s.truncate(below) })
}

// change is do for an operation without a result.
func change(ctx context.Context, l *lease, name string, operation func(*shard)) error {
	_, err := do(ctx, l, name, func(s *shard) (struct{}, error) {
		operation(s)
		return struct{}{}, nil
	})
	return err
}

// shared is a lease of a cluster's log.
type shared struct{ *lease }

// Serve implements [journal.Shared].
func (l shared) Serve(answer journal.Answer) error {
	unlock, err := l.use(context.Background())
	if err != nil {
		return err
	}
	defer unlock()
	return l.server.serve("shard", answer)
}

// SinceBoot implements [journal.Clocked].
func (l shared) SinceBoot() (time.Duration, string) {
	return time.Since(l.member.booted), l.member.boot
}

// Ahead implements [journal.Clocked].
func (l shared) Ahead(_ context.Context, boot string) (time.Duration, bool) {
	s := l.member.store
	s.mu.Lock()
	defer s.mu.Unlock()
	booted, ok := l.member.met[boot]
	return booted.Sub(l.member.booted), ok
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (l *lease) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := ctx.Err(); err != nil {
		return err
	}
	if disk.CheckBlobName(name) != nil {
		return fmt.Errorf("memlog: %q is not the name of a blob", name)
	}
	if err := write(&b); err != nil {
		return err
	}
	return change(ctx, l, "put", func(s *shard) { s.blobs[name] = blob{b.Bytes(), time.Now()} })
}

func (l *lease) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	return do(ctx, l, "get", func(s *shard) (io.ReadCloser, error) { return s.get(name) })
}

// get opens a blob.
func (s *shard) get(name string) (io.ReadCloser, error) {
	b, ok := s.blobs[name]
	if !ok {
		return nil, fmt.Errorf("memlog: %w: %s", journal.ErrNoBlob, name)
	}
	return io.NopCloser(bytes.NewReader(b.data)), nil
}

func (l *lease) Blobs(ctx context.Context) ([]journal.Blob, error) {
	return do(ctx, l, "blobs", (*shard).list)
}

// list lists the blobs.
func (s *shard) list() (list []journal.Blob, err error) {
	for _, name := range slices.Sorted(maps.Keys(s.blobs)) {
		b := s.blobs[name]
		list = append(list, journal.Blob{Name: name, Size: int64(len(b.data)), Time: b.time})
	}
	return list, nil
}

func (l *lease) Delete(ctx context.Context, name string) error {
	return change(ctx, l, "delete", func(s *shard) { delete(s.blobs, name) })
}
