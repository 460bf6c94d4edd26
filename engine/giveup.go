package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// GaveUp is the input of a run that is started because another has died: the
// follow-up run.
type GaveUp struct {
	// ByReference is set in the stored input of the follow-up run if Input and Outputs
	// are too large to be stored again. A handler never sees it: the engine reads both
	// from the dead run before it calls the handler, or fails the attempt.
	ByReference *GaveUpReference `json:"by_reference,omitempty"` // first: see isReference

	Run      string                     `json:"run"`
	Workflow string                     `json:"workflow"`
	Key      string                     `json:"key,omitempty"`
	Created  time.Time                  `json:"created"`
	Attempts int                        `json:"attempts"`
	Step     string                     `json:"step"` // the one that failed
	Reason   string                     `json:"reason"`
	Error    string                     `json:"error"`
	Input    json.RawMessage            `json:"input,omitempty"`
	Outputs  map[string]json.RawMessage `json:"outputs,omitempty"` // of the steps that succeeded

	// Of a repetition, the first run of the chain and its key.
	Origin    string `json:"origin,omitempty"`
	OriginKey string `json:"origin_key,omitempty"`
}

// GaveUpReference says which parts of a [GaveUp] are read from the dead run.
type GaveUpReference struct {
	Run     string   `json:"run"`
	Bytes   int      `json:"bytes"`             // size of the complete GaveUp
	Outputs []string `json:"outputs,omitempty"` // the steps that had succeeded
}

// OnGiveUp starts a run of another workflow whenever one of this workflow dies,
// with a [GaveUp] as its input. It is recorded together with the death, and so
// happens exactly once for each.
//
// Large inputs and outputs are not stored again. They are read from the dead run when
// an attempt of the follow-up run begins. The dead run is kept until the follow-up run
// is over; if someone ends it by Cancel or Replay, it is kept for Config.Retention
// like any other. An attempt that finds it gone fails, and its error says so.
func OnGiveUp(w *Workflow) Part {
	return func(b *builder) {
		if w == nil {
			b.errs = append(b.errs, fmt.Errorf("on give up: no workflow"))
		}
		b.w.onGiveUp = w
	}
}

// giveUpInput is the size of the largest input of a follow-up run that is stored by
// value. The entry of the death has room for it.
const giveUpInput = 150 << 10

// giveUpSource is how the source of a follow-up run begins; the id of the dead run
// follows.
const giveUpSource = "on-give-up of "

// giveUp starts a run of the next workflow, because the run is dead.
func (t *turn) giveUp(run *machine.Run, next *Workflow) error {
	g := GaveUp{
		Run: run.ID.String(), Workflow: run.Def.Name, Key: run.Key, Created: time.Unix(0, run.Created),
		Attempts: run.Attempts(), Reason: run.Reason.String(), Input: run.Input, Outputs: map[string]json.RawMessage{},
	}
	g.Step, g.Error, _ = run.Situation()
	g.Origin, g.OriginKey = originOf(run)
	for i := range run.Steps {
		if out := run.Output(i); out != nil {
			g.Outputs[run.Def.Steps[i].Name] = out
		}
	}
	text, err := json.Marshal(g)
	if err == nil && len(text) > min(t.o.sh.cfg.MaxPayload, giveUpInput) {
		text, err = json.Marshal(g.byReference(run, len(text)))
	}
	if err != nil {
		return fmt.Errorf("what is started when %s gives up: %w", run.Def.Name, err)
	}
	_, _, err = t.start(&machine.Start{Hash: next.def.Hash(), Input: text, Source: giveUpSource + g.Run}, next.def)
	return err
}

// byReference returns g as it is stored if it is too large.
func (g GaveUp) byReference(run *machine.Run, size int) GaveUp {
	g.Input, g.Outputs = nil, nil
	g.ByReference = &GaveUpReference{Run: g.Run, Bytes: size}
	for i := range run.Steps {
		if run.Output(i) != nil {
			g.ByReference.Outputs = append(g.ByReference.Outputs, run.Def.Steps[i].Name)
		}
	}
	return g
}

// isReference reports whether the input of a run is a GaveUp whose large parts are
// stored with the dead run.
func isReference(input []byte) bool { return bytes.HasPrefix(input, []byte(`{"by_reference":{`)) }

// completeInput returns the input for a handler: a GaveUp that is stored by reference
// is completed from the dead run. A step that has succeeded never runs again, so its
// output is what it was when the run died.
func (p *process) completeInput(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	if !isReference(input) {
		return input, nil
	}
	var g GaveUp
	if err := json.Unmarshal(input, &g); err != nil {
		return nil, retry.Permanent(fmt.Errorf("input of the run: %w", err))
	}
	ref := g.ByReference
	if ref == nil {
		return input, nil
	}
	dead, err := p.getRun(ctx, ref.Run)
	if errors.Is(err, ErrNotFound) {
		return nil, retry.Permanent(fmt.Errorf("input of the run: the input and outputs of run %s (%d bytes) are stored with that run only, and it is not kept any more: "+
			"keep runs for longer (Retention, DeadRetention)", ref.Run, ref.Bytes))
	}
	if err != nil {
		return nil, fmt.Errorf("input of the run: the input and outputs of run %s (%d bytes) can't be read: %w", ref.Run, ref.Bytes, err)
	}
	g.ByReference, g.Input, g.Outputs = nil, dead.Input, map[string]json.RawMessage{}
	outputs := map[string]json.RawMessage{}
	for _, s := range dead.Steps {
		outputs[s.Name] = s.Output
	}
	for _, step := range ref.Outputs {
		if outputs[step] == nil {
			return nil, retry.Permanent(fmt.Errorf("input of the run: run %s has no output of step %q any more", ref.Run, step))
		}
		g.Outputs[step] = outputs[step]
	}
	text, err := json.Marshal(g)
	if err != nil {
		return nil, retry.Permanent(fmt.Errorf("input of the run: %w", err))
	}
	return text, nil
}

// purgeEvery is how often old runs are looked for.
func (o *owner) purgeEvery() time.Duration {
	return min(time.Hour, o.sh.cfg.Retention/20, o.sh.cfg.DeadRetention/20)
}

// purge forgets runs that were kept long enough.
func (o *owner) purge() {
	idle := o.sh.snapshots.needsEntry()
	if now := time.Now(); idle || now.Sub(o.purgedAt) >= o.purgeEvery() {
		o.purgedAt = now
		t := &o.turn
		if rec, ok := o.purgeRecord(t.now); ok || idle {
			t.must(&rec)
		}
		o.sh.views.requestExpiry()
	}
}

// purgeRecord decides to forget runs that were kept long enough. Dead runs that a
// follow-up run refers to are kept.
func (o *owner) purgeRecord(now int64) (rec machine.Record, ok bool) {
	dead := now - int64(o.sh.cfg.DeadRetention)
	return o.m.Purge(now-int64(o.sh.cfg.Retention), dead, o.referenced(dead))
}

// referenced returns the dead runs whose input a follow-up run may still need: one that
// is not over, or dead and not forgotten yet.
func (o *owner) referenced(dead int64) map[machine.ID]bool {
	ids := map[machine.ID]bool{}
	for _, r := range o.m.All() {
		if r.Finished() || r.Closed() && r.Ended < dead {
			continue
		}
		text, follows := strings.CutPrefix(r.Source(), giveUpSource)
		switch {
		case r.IsCold(): // its input is not in memory: the run is kept in case it is needed
		case !isReference(r.Input):
			continue
		case !follows: // it repeats a follow-up run
			var g GaveUp
			if json.Unmarshal(r.Input, &g) == nil && g.ByReference != nil {
				text, follows = g.ByReference.Run, true
			}
		}
		if id, err := machine.ParseID(text); follows && err == nil {
			ids[id] = true
		}
	}
	return ids
}
