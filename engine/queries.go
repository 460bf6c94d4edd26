package engine

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"iter"
	"path/filepath"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/cluster"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/retry"
)

// Get returns a run with its whole history.
func (e *Engine) Get(ctx context.Context, id string) (*Info, error) {
	return e.router.Read(ctx, id)
}

// Wait waits until a run has ended. It returns no error for a run that is dead: see
// [Info.Err]. If the run was continued by [Again], Wait waits for the last run of the chain.
//
// A handler that waits for a run counts for [Config.Concurrency] meanwhile. If all running
// handlers wait for runs that can't begin, that is a deadlock. [Engine.Troubles] reports it
// if the handlers call Wait with their own context. It is better to let the handler return,
// and to start the rest of the work by [OnEnd].
func (e *Engine) Wait(ctx context.Context, id string) (*Info, error) {
	return e.router.Wait(ctx, id)
}

// Find returns the ids of the runs whose id begins with the text or whose key is the text, at
// most limit of them. If the text is a complete id, it returns that id and does not check that
// the run exists.
func (e *Engine) Find(ctx context.Context, text string, limit int) ([]string, error) {
	return e.router.Find(ctx, text, limit)
}

// List returns a page of the runs that match the filter. It reads the view, which is
// slightly behind the log: see [Filter.Fresh].
func (e *Engine) List(ctx context.Context, f Filter) (Page, error) {
	return e.router.List(ctx, f)
}

// DeadGroups returns at most limit groups of dead runs that failed alike, the largest first.
// It leaves out the workflows that match exclude, as [Filter.Exclude] does.
func (e *Engine) DeadGroups(ctx context.Context, limit int, exclude ...string) (Groups, error) {
	return e.router.DeadGroups(ctx, limit, &shard.Call{Exclude: exclude})
}

// FreshDeadGroups is [Engine.DeadGroups] that waits, for at most a second, until the groups
// include everything that was acknowledged before the call.
func (e *Engine) FreshDeadGroups(ctx context.Context, limit int, exclude ...string) (Groups, error) {
	return e.router.DeadGroups(ctx, limit, &shard.Call{Exclude: exclude, Fresh: true})
}

// Stats returns counts of runs, attempts and timers. Its cost does not depend on the number
// of runs.
func (e *Engine) Stats(ctx context.Context) (Stats, error) {
	return e.router.Stats(ctx)
}

// Troubles returns the current problems that keep this process from working, and the runs that wait
// for other code, counted by reason: see [Trouble.Runs].
func (e *Engine) Troubles() []Trouble {
	return e.router.Troubles()
}

// Warnings returns problems that an operator should look at, although this process works: entries
// that the log has lost in the last 30 days, schedules whose last start was refused, and functions of
// flows that have neither called an operation nor returned for a minute.
func (e *Engine) Warnings() []Trouble {
	return e.router.Warnings()
}

// History returns the history of a run as JSON, for the package enginetest: its function Replay tells
// whether new code would park the run. It has the run's data: input, results of operations, errors
// and signals. Of definitions, it has no arguments of steps.
func (e *Engine) History(ctx context.Context, id string) (json.RawMessage, error) {
	return e.router.History(ctx, id)
}

// Tell adds an event that did not happen in the engine to the event stream, so that one
// stream has all events of the process. The event is not stored.
func (e *Engine) Tell(ev retry.Event) {
	e.process.Hub.Publish([]retry.Event{ev}, "")
}

// Events yields the events after the one with sequence number after. 0 means all events
// that are still in memory: none are kept before the first reader or observer. [NewEvents] means
// only events that happen after the call. With each event it yields how many events before
// it were missed because the reader was too slow. It ends when the context ends or the
// engine stops. In a cluster it yields the events of all processes, but it may miss events
// of other processes.
func (e *Engine) Events(ctx context.Context, after uint64) iter.Seq2[Event, uint64] {
	events := e.process.Hub.Events(ctx, after)
	e.router.FollowEvents()
	return events
}

// NewEvents is the argument of [Engine.Events] for only new events.
const NewEvents = info.NewEvents

// Operator has what an operator asks about a process and its place in a cluster: see [Engine.Operator].
type Operator struct {
	router *cluster.Router
	dir    string
}

// Operator returns the methods for operators and their tools. Programs that only start and follow runs
// do not need them.
func (e *Engine) Operator() Operator { return Operator{&e.router, e.cfg.Dir} }

// AskMembers sends a request to all other members of the cluster at once, and returns their
// answers in the order of their names. It returns nothing if the engine is not part of a
// cluster. A member of an older release answers with an error.
func (o Operator) AskMembers(ctx context.Context, request json.RawMessage) ([]MemberReply, error) {
	return o.router.AskMembers(ctx, request)
}

// OwnStats is [Engine.Stats] of the shards that this process owns, and their number. Without
// a cluster it returns the same as Stats, and 1. It is cheap, because it sends no requests
// to other processes.
func (o Operator) OwnStats(ctx context.Context) (s Stats, shards int, err error) {
	return o.router.OwnStats(ctx)
}

// BackupWithout is [Engine.Backup] for a cluster that has lost shards: it leaves out the
// given shards. It fails if one of them can be read, or may become readable later. It
// returns what was copied, but only for a cluster.
func (o Operator) BackupWithout(ctx context.Context, dir string, shards []int) (copied move.Moved, err error) {
	return o.router.Backup(ctx, dir, shards)
}

// DiskUsage returns the size in bytes of each file in [Config.Dir], by its path relative
// to Dir.
func (o Operator) DiskUsage() (map[string]int64, error) {
	sizes := map[string]int64{}
	err := filepath.WalkDir(o.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			name, _ := filepath.Rel(o.dir, path)
			sizes[name] = info.Size()
		}
		return err
	})
	return sizes, err
}

// Cluster returns the members and shards of the cluster. ok is false if the engine is not
// part of a cluster.
func (e *Engine) Cluster(ctx context.Context) (info ClusterInfo, ok bool, err error) {
	return e.router.ClusterInfo(ctx)
}
