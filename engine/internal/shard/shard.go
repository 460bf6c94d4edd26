// Package shard runs the runs of one log: its owner makes one turn after the other, stores what was decided in it, and
// then begins attempts, calls functions and answers requests. Another goroutine can only send it a request: a
// method that records something needs a [Recorder], and only the owner has one.
package shard

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/admission"
	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
)

// Shard runs the runs of one log. An engine without a cluster has one shard with all runs.
// In a cluster each process owns some of the shards.
//
// The shard opens and closes its parts. Other goroutines reach the owner by its requests: see
// commands and queries. The other parts belong to the owner, except for health, pauses and deliveries.
type Shard struct {
	process *Process
	Number  int
	shards  int // number of all shards
	Lease   journal.Lease

	requests
	room   chan struct{} // wakes the owner: an attempt may be able to begin
	kill   chan struct{} // closed when the shard must end at once
	closed sync.Once
	killed sync.Once
	given  atomic.Bool // the shard ends because another process takes it over

	attempts   sync.WaitGroup // running handlers
	deliveries deliveryQueue
	stuck      stuckHandlers
	host       attemptHost
	family     families

	owner      owner
	dispatcher dispatcher
	scheduler  scheduler
	views      viewWriter
	snapshots  snapshotWriter
	end        logEnd
	health     health
	pauses     pauses
}

// New returns a shard that keeps its view in a folder; an empty dir means no view.
func New(p *Process, number, shards int, dir string) *Shard {
	sh := &Shard{
		process: p, Number: number, shards: shards, room: make(chan struct{}, 1), kill: make(chan struct{}),
		requests: requests{
			starts: make(chan incoming, 1024), others: make(chan incoming, 1024), reads: make(chan incoming, 1024),
			stop: make(chan struct{}), done: make(chan struct{}),
		},
	}
	sh.requests.health = &sh.health
	sh.health.init(p.Settings.Logger, p.Settings.Redact)
	sh.stuck.requests, sh.stuck.known = &sh.requests, map[stuckHandler]bool{}
	sh.host.process, sh.host.requests, sh.host.running, sh.host.stuck = p, &sh.requests, &sh.attempts, &sh.stuck
	sh.deliveries.process, sh.deliveries.requests, sh.deliveries.running = p, &sh.requests, &sh.attempts
	sh.deliveries.ctx, sh.deliveries.end = context.WithCancel(context.Background())
	sh.owner.init(sh)
	d := &sh.dispatcher
	d.process, d.state, d.health, d.host, d.running = p, &sh.owner.state, &sh.health, &sh.host, map[attemptKey]*Attempt{}
	d.calls, d.admission = flow.New(sh.flowSettings()), admission.New(p.Admission, sh, p.Handlers.Limits, &sh.owner.turn)
	sh.scheduler = scheduler{
		process: p, state: &sh.owner.state, health: &sh.health, events: &sh.owner.events, decoded: map[*machine.Schedule]info.Schedule{}, unstartable: map[string]string{},
	}
	sh.family = families{settings: &p.Settings, shards: shards, health: &sh.health, stuck: &sh.stuck, calls: &sh.dispatcher.calls}
	sh.end = logEnd{shard: number, acceptLoss: p.Settings.AcceptLoss, health: &sh.health}
	sh.snapshots = snapshotWriter{process: p, state: &sh.owner.state, health: &sh.health}
	sh.views.state, sh.views.end, sh.views.archive = &sh.owner.state, &sh.end, &sh.snapshots.archive
	sh.views.process, sh.views.health = p, &sh.health
	if dir != "" {
		sh.views.path = filepath.Join(dir, "view.db")
	}
	return sh
}

// flowSettings returns what the calls of functions need of the shard.
func (sh *Shard) flowSettings() *flow.Settings {
	_, isClustered := sh.process.Settings.Log.(journal.Cluster)
	return &flow.Settings{
		Host: sh, Registry: &sh.process.Handlers, Admission: sh.process.Admission, Replay: sh.process.replay, Watch: sh.process.watch, Running: &sh.attempts, Logger: sh.process.Settings.Logger,
		Shard: sh.Number, Shards: sh.shards, IsClustered: isClustered, MaxPayload: sh.process.Settings.MaxPayload, Grace: sh.process.Settings.Grace,
		Redact: sh.process.Settings.Redact, ErrorText: sh.process.Settings.errorText,
	}
}

// Open takes the lease of the shard, restores the state, and records that this process owns
// the shard now.
func (sh *Shard) Open(ctx context.Context, log journal.Log) (err error) {
	defer func() {
		if err != nil {
			sh.Release()
		}
	}()
	if sh.Lease, err = log.Lease(ctx, sh.Number); err != nil {
		return err
	}
	sh.end.lease, sh.snapshots.lease = sh.Lease, sh.Lease
	if err := move.Check(ctx, sh.Lease); err != nil {
		return err
	}
	boot := sh.process.Settings.Uptime
	if sh.process.Settings.Log != nil {
		boot = func() (time.Duration, string) { return 0, "" }
	}
	if l, ok := sh.Lease.(journal.Clocked); ok {
		boot = l.SinceBoot
	}
	sh.owner.clock = newClock(sh.process.Settings.Wall, boot)
	if err := (recovery{sh}).run(ctx); err != nil {
		return err
	}
	sh.pauses.update(sh.owner.m)
	sh.scheduler.warn()
	sh.views.startWriting()
	return nil
}

// Release closes the snapshots and the view, and releases the lease.
func (sh *Shard) Release() {
	sh.snapshots.close()
	sh.views.close()
	if sh.Lease != nil {
		if err := sh.Lease.Release(); err != nil {
			sh.process.Settings.Logger.Error("can't release the lease of the log", "error", err)
		}
	}
}

// Run runs the owner until the shard is closed or fails, and cleans up.
func (sh *Shard) Run() {
	defer close(sh.done)
	err := sh.owner.serve()
	sh.deliveries.end()
	if err != nil && !errors.Is(err, ErrClosed) {
		sh.process.Settings.Logger.Error("engine stopped", "error", err)
	}
	sh.err = err
	sh.owner.abandon()
	sh.host.dead.Store(true)
	sh.dispatcher.abandon()
	if !errors.Is(err, ErrClosed) || errors.Is(err, journal.ErrStale) {
		sh.views.stopWriting()
		sh.Release()
	}
}

// Close stops the shard: it waits until the attempts have ended, or stops at once when the
// context ends. isHandover says that another process takes it over.
func (sh *Shard) Close(ctx context.Context, isHandover bool) {
	sh.given.Store(isHandover)
	if ctx.Err() != nil { // no time is left to end in order
		sh.killed.Do(func() { close(sh.kill) })
	}
	sh.closed.Do(func() {
		close(sh.stop)
		sh.deliveries.end()
	})
	select {
	case <-sh.done:
	case <-ctx.Done():
		sh.killed.Do(func() { close(sh.kill) })
		<-sh.done
	}
}

// Troubles returns the current troubles of the shard.
func (sh *Shard) Troubles() []info.Trouble { return sh.health.list() }

// Warnings returns the problems that do not keep the shard from working.
func (sh *Shard) Warnings() []info.Trouble { return sh.health.listWarnings() }

// WaitForHandlers waits until the handlers of a closed shard have returned.
func (sh *Shard) WaitForHandlers() { sh.attempts.Wait() }

// Wake makes the owner try to begin attempts, unless it is woken already.
func (sh *Shard) Wake() {
	select {
	case sh.room <- struct{}{}:
	default:
	}
}

// View returns the view of the shard; nil if it has none.
func (sh *Shard) View() (*view.View, error) { return sh.views.get() }
