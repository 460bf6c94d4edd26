package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/logsample"
)

// health has the current troubles and warnings of a shard. Any goroutine may use it.
type health struct {
	mu       sync.Mutex
	troubles [5]trouble                // by the constants troubleStore and so on
	clock    trouble                   // see clockUnknown
	clockEnd time.Time                 // when the last wait that clock concerns is over
	warnings []info.Trouble            // about schedules
	blocked  []info.Trouble            // warnings about functions of flows
	losses   []info.Trouble            // what the log and the archives have lost
	parked   []info.Trouble            // runs that wait for other code, by reason
	wrong    error                     // an internal error that stops the shard; nil if there is none
	logged   logsample.Sampler[string] // limits repeated log lines, by message
	log      *slog.Logger
	redact   func(string) string
}

// init limits each message of logError to one in a minute.
func (h *health) init(log *slog.Logger, redact func(string) string) {
	h.log, h.redact, h.logged.Every = log, redact, time.Minute
}

// logError logs an error, at most once a minute for each message.
func (h *health) logError(message string, args ...any) {
	if ok, _ := h.logged.Allow(message, time.Now()); ok {
		h.log.Error(message, args...)
	}
}

type trouble struct {
	err   error
	since time.Time
}

const (
	troubleStore = iota
	troubleView
	troubleSnapshot
	troubleDeadlock
	troubleArchive
)

func (h *health) set(which int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := &h.troubles[which]
	if err != nil && t.err == nil {
		t.since = time.Now()
	}
	t.err = err
}

func (h *health) get(which int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.troubles[which].err
}

const clockTrouble = "does not know the clock of its previous owner"

var errClockUnknown = errors.New("no heartbeat of the previous owner's machine was seen: waits that began before this process took " +
	"the shard over may be too short or too long, by the difference of the two clocks: have all machines set their clocks by NTP")

// clockUnknown notes that the waits of the shard, of which the last is over at the time last, may
// be wrong. The owner works all the same.
func (h *health) clockUnknown(last int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock, h.clockEnd = trouble{errClockUnknown, time.Now()}, time.Unix(0, last)
}

type storeLimit struct{}

// StoreWithin returns a context for calls that fail if the log can't be written for this long.
func StoreWithin(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, storeLimit{}, d)
}

// limitStoring returns a context that ends as StoreWithin says. The caller must call cancel.
func (h *health) limitStoring(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	limit, ok := ctx.Value(storeLimit{}).(time.Duration)
	if !ok {
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	next := func() time.Duration {
		h.mu.Lock()
		t := h.troubles[troubleStore]
		h.mu.Unlock()
		if t.err == nil {
			return limit
		}
		wait := limit - time.Since(t.since)
		if wait <= 0 {
			end(fmt.Errorf("%w: %w", ErrNotStored, t.err))
		}
		return wait
	}
	if wait := next(); wait > 0 {
		go func() {
			for ; wait > 0; wait = next() {
				select {
				case <-time.After(wait):
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return ctx, func() { end(nil) }
}

// replace replaces one of the lists: warnings, blocked or parked.
func (h *health) replace(list *[]info.Trouble, by []info.Trouble) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*list = by
}

// shownFor is how long the loss of entries is shown.
const shownFor = 30 * 24 * time.Hour

// lost adds losses of the log to the warnings.
func (h *health) lost(list []journal.Loss) {
	for _, l := range list {
		if time.Since(l.At) > shownFor {
			continue
		}
		h.log.Warn("the log has lost acknowledged entries", "loss", l.String(), "recorded", l.At, "because", l.Why)
		h.lose(info.Trouble{
			What: "the log has lost acknowledged entries: runs may be missing, or in an earlier state", Since: l.At, Error: l.String() + "; " + l.Why,
			Do: "restore a backup that has these entries, or start the missing runs again",
		})
	}
}

// lose adds a warning that stays until the shard is opened again.
func (h *health) lose(t info.Trouble) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.losses = append(h.losses, t)
}

// broken notes an internal error, unless it is nil: a record contradicts the state. The owner stops before
// it stores the turn in which that happened.
func (h *health) broken(err error) {
	if err == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = cmp.Or(h.wrong, fmt.Errorf("this is an error of tideover: %w", err))
}

func (h *health) fatal() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wrong
}

// list returns the current troubles of the shard.
func (h *health) list() (list []info.Trouble) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, what := range [...]string{"can't store what happens", "can't write the view", "can't write a snapshot", "can't go on: attempts wait for runs that can't begin (deadlock)", "can't read an archive of finished runs"} {
		if t := h.troubles[i]; t.err != nil {
			list = append(list, info.Trouble{What: what, Since: t.since, Error: h.redact(t.err.Error())})
		}
	}
	if t := h.clock; t.err != nil && time.Now().Before(h.clockEnd) {
		list = append(list, info.Trouble{What: clockTrouble, Since: t.since, Error: t.err.Error(), Works: true})
	}
	return append(list, h.parked...)
}

// listWarnings returns the problems that do not keep the shard from working.
func (h *health) listWarnings() []info.Trouble {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Concat(h.losses, h.warnings, h.blocked)
	for i := range list {
		list[i].Error = h.redact(list[i].Error)
	}
	return list
}

// OfShard adds the number of the shard to the texts of its troubles, and returns them.
func OfShard(shard int, list []info.Trouble) []info.Trouble {
	for i := range list {
		list[i].What = "shard " + strconv.Itoa(shard) + " " + list[i].What
	}
	return list
}

// RestoreFolder says what to do about a damaged folder.
const RestoreFolder = "restore a backup, which replaces the whole folder"

// logEnd finds out whether the log of a shard has lost entries at its end, or a blob.
type logEnd struct {
	lease      journal.Lease
	shard      int
	acceptLoss bool
	health     *health
}

// check returns an error if the log ends before the entry seq, whose effects shown has, and the loss
// is not accepted. A backend that implements [journal.Witnessed] has checked the end of the log, so shown
// is wrong then.
func (e *logEnd) check(last, seq uint64, shown string) error {
	if _, ok := e.lease.(journal.Witnessed); ok || seq <= last {
		return nil
	}
	loss := journal.Loss{Log: fmt.Sprintf("the log of shard %d", e.shard), From: last + 1, To: seq, Shown: shown}
	if !e.acceptLoss {
		return &journal.LossError{Loss: loss, Restore: "restore a backup of the cluster", Acceptable: true}
	}
	loss.At, loss.Why = time.Now(), journal.WhyAccepted
	e.health.lost([]journal.Loss{loss})
	return nil
}

// checkBlobs returns an error if a blob has the effects of entries that the log does not have. If the
// loss is accepted, it deletes the blob: later entries get the same numbers.
func (e *logEnd) checkBlobs(ctx context.Context) error {
	_, last, err := e.lease.Bounds(ctx)
	if err != nil {
		return err
	}
	blobs, err := e.lease.Blobs(ctx)
	if err != nil {
		return err
	}
	var ahead []string
	for _, b := range blobs {
		for _, prefix := range []string{store.SnapshotPrefix, store.ArchivePrefix} {
			seq, ok := store.ParseName(b.Name, prefix)
			if !ok || seq <= last {
				continue
			}
			if err := e.check(last, seq, b.Name); err != nil {
				return err
			}
			ahead = append(ahead, b.Name)
		}
	}
	return store.Delete(ctx, e.lease, ahead)
}

// checkArchives adds a warning for each archive that is missing or does not have its size. The view has the
// runs of the archive too, so nothing is missing in lists before the view is rebuilt.
func (e *logEnd) checkArchives(ctx context.Context) error {
	_, _, archives, err := store.List(ctx, e.lease)
	if err != nil {
		return err
	}
	if _, ok := e.lease.(journal.Witnessed); !ok {
		return nil // opening a blob of a cluster reads all of it
	}
	for _, name := range archives {
		raw, err := e.lease.Get(ctx, name)
		switch {
		case err == nil:
			_ = raw.Close() // it was not even read
		case store.IsDamage(err):
			e.health.lose(info.Trouble{
				What: "an archive of finished runs is damaged: these runs are missing when the view is rebuilt", Since: time.Now(),
				Error: fmt.Sprintf("archive %s: %v", name, err), Do: RestoreFolder,
			})
		default:
			return err
		}
	}
	return nil
}
