package engine

import (
	"context"
	"encoding/json"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// foldPolicy is for a log that is in use: what was about to be read may have been
// cut off, because there is a newer snapshot.
var foldPolicy = retry.Must("fixed(1s) attempts=5")

// read folds the source, and lays it out as the target.
func (m *mover) read(ctx context.Context) error {
	var from []*machine.Machine
	for i, r := range m.from.readers {
		f, err := retry.Value(ctx, foldPolicy, func(ctx context.Context) (*folded, error) { return fold(ctx, r) })
		if err != nil {
			return m.from.unreadable(m.from.numbers[i], err)
		}
		m.source, from = append(m.source, f), append(from, f.m)
		t, err := f.m.Tally(m.seed)
		if err != nil {
			return m.from.wrap(i, err)
		}
		m.want.state.Add(t)
		for h := range f.m.Definitions() {
			m.missing[h] = true
		}
		m.tell("read", i+1, len(m.from.readers))
	}
	t := &m.want.state
	for state, n := range t.Runs {
		if n > 0 {
			m.moved.Runs[machine.State(state).String()] = n
		}
	}
	m.moved.Orphans, m.moved.Keys, m.moved.Schedules = t.Orphans, t.Keys, t.Schedules
	var err error
	if m.layout, err = m.plan(ctx, from); err != nil {
		return err
	}
	m.parts, err = m.layout.Distribute(from...)
	return err
}

// plan returns where everything will be. In a cluster it is settled with that where
// runs that are started later will be.
func (m *mover) plan(ctx context.Context, from []*machine.Machine) (*machine.Layout, error) {
	layout := machine.NewLayout(len(m.to.leases), from...)
	limited := map[string]bool{}
	for _, part := range from {
		for name := range part.Workflows() {
			limited[name] = false
		}
		for _, stored := range part.Schedules() {
			var s Schedule
			_ = json.Unmarshal(stored.Data, &s) // as data wrote it
			layout.Starts(stored.Name, s.Workflow)
		}
	}
	for _, w := range m.opts.Workflows {
		limited[w.Name()] = w.limited()
	}
	for name, gathered := range limited {
		if m.to.cluster != nil && !m.opts.DryRun {
			var err error
			if gathered, err = settlePlace(ctx, m.to.cluster, name, gathered); err != nil {
				return nil, err
			}
		}
		if gathered {
			layout.Together(name)
		}
	}
	return layout, nil
}
