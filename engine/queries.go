package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
)

// Get returns a run with its whole history.
func (e *Engine) Get(ctx context.Context, id string) (*Info, error) {
	return e.read(ctx, id)
}

// Wait waits until a run has ended. It returns no error for a run that is dead: see
// [Info.Err]. If the run was continued by [Again], Wait waits for the last run of the chain.
//
// A handler that waits for a run counts for [Config.Concurrency] meanwhile. If all running
// handlers wait for runs that can't begin, that is a deadlock. [Engine.Troubles] reports it
// if the handlers call Wait with their own context. It is better to let the handler return,
// and to start the rest of the work by [OnEnd].
func (e *Engine) Wait(ctx context.Context, id string) (*Info, error) {
	if a := attemptOf(ctx); a != nil && a.host.process == &e.process {
		if run, err := machine.ParseID(id); err == nil {
			defer e.deadlocks.begin(a, run)()
		}
	}
	for {
		a, err := e.of(ctx, id, &call{Op: opWait})
		if err != nil {
			return nil, fmt.Errorf("wait for %s: %w", id, err)
		}
		if !a.Over {
			continue // an owner in another process answers after some time, even if the run has not ended
		}
		i, err := e.Get(ctx, id)
		switch {
		case err != nil:
			return nil, err
		case i.ContinuedBy != "":
			id = i.ContinuedBy
		case i.Finished():
			return i, nil
		}
		// The run was continued by another one, or was retried after it had ended: wait again.
	}
}

// Find returns the ids of the runs whose id begins with the text or whose key is the text, at
// most limit of them. If the text is a complete id, it returns that id and does not check that
// the run exists.
func (e *Engine) Find(ctx context.Context, text string, limit int) (ids []string, err error) {
	if _, err := machine.ParseID(text); err == nil {
		return []string{text}, nil
	}
	answers, silent, err := e.gather(ctx, &call{Op: opFind, Text: text, Limit: limit})
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		if a != nil {
			ids = append(ids, a.IDs...)
		}
	}
	if len(ids) == 0 && len(silent) > 0 {
		return nil, fmt.Errorf("find %q: %w", text, away(silent))
	}
	slices.Sort(ids)
	return ids[:min(len(ids), max(limit, 0))], nil
}

// List returns a page of the runs that match the filter. It reads the view, which is
// slightly behind the log: see [Filter.Fresh].
func (e *Engine) List(ctx context.Context, f Filter) (Page, error) {
	f.Limit = min(cmp.Or(max(f.Limit, 0), view.DefaultLimit), view.MaxLimit)
	answers, silent, err := e.gather(ctx, &call{Op: opList, Filter: &f})
	if err != nil {
		return Page{}, err
	}
	if e.alone != nil {
		return *answers[0].Page, nil
	}
	return mergePages(answers, silent, &f), nil
}

// DeadGroups returns at most limit groups of dead runs that failed alike, the largest first.
// It leaves out the workflows that match exclude, as [Filter.Exclude] does.
func (e *Engine) DeadGroups(ctx context.Context, limit int, exclude ...string) (Groups, error) {
	return e.deadGroups(ctx, limit, &call{Exclude: exclude})
}

// FreshDeadGroups is [Engine.DeadGroups] that waits, for at most a second, until the groups
// include everything that was acknowledged before the call.
func (e *Engine) FreshDeadGroups(ctx context.Context, limit int, exclude ...string) (Groups, error) {
	return e.deadGroups(ctx, limit, &call{Exclude: exclude, Fresh: true})
}

func (e *Engine) deadGroups(ctx context.Context, limit int, c *call) (Groups, error) {
	c.Op, c.Limit = opGroups, limit
	if e.alone == nil {
		c.Limit = max(limit, manyGroups)
	}
	answers, silent, err := e.gather(ctx, c)
	if err != nil {
		return Groups{}, err
	}
	if e.alone != nil {
		return Groups{Groups: answers[0].Groups}, nil
	}
	return Groups{Groups: mergeGroups(answers, limit), Silent: silent}, nil
}

// Stats returns counts of runs, attempts and timers. Its cost does not depend on the number
// of runs.
func (e *Engine) Stats(ctx context.Context) (Stats, error) {
	answers, silent, err := e.gather(ctx, &call{Op: opStats})
	if err != nil {
		return Stats{}, err
	}
	if e.alone != nil {
		return *answers[0].Stats, nil
	}
	s := mergeStats(answers)
	s.Silent = silent
	s.Troubles = append(s.Troubles, e.cluster.troubles()...)
	return s, nil
}

// Troubles returns the current problems that keep this process from working, and the runs that wait
// for other code, counted by reason: see [Trouble.Runs].
func (e *Engine) Troubles() []Trouble {
	if e.alone != nil {
		return e.alone.health.list()
	}
	list := e.cluster.troubles()
	for _, sh := range e.cluster.own() {
		list = append(list, ofShard(sh.number, sh.health.list())...)
	}
	return list
}

// Warnings returns problems that an operator should look at, although this process works: entries
// that the log has lost in the last 30 days, schedules whose last start was refused, and functions of
// flows that have neither called an operation nor returned for a minute.
func (e *Engine) Warnings() (list []Trouble) {
	for _, sh := range e.shards() {
		list = append(list, sh.health.listWarnings()...)
	}
	return list
}

// History returns the history of a run as JSON, for the package enginetest: its function Replay tells
// whether new code would park the run. It has the run's data: input, results of operations, errors
// and signals. Of definitions, it has no arguments of steps.
func (e *Engine) History(ctx context.Context, id string) (json.RawMessage, error) {
	a, err := e.of(ctx, id, &call{Op: opHistory})
	return a.History, oldMemberError(err)
}
