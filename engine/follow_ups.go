package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// Ended is the input of a run that is started by [OnEnd].
type Ended struct {
	Run      string    `json:"run"`
	Workflow string    `json:"workflow"`
	Key      string    `json:"key,omitempty"`
	State    string    `json:"state"` // succeeded, dead or canceled
	At       time.Time `json:"at"`

	// Origin and OriginKey are the id and the key of the first run of a chain of
	// repetitions; "" if the run repeats no other.
	Origin    string `json:"origin,omitempty"`
	OriginKey string `json:"origin_key,omitempty"`
}

// OnEnd starts a run of the workflow w when a run of this workflow ends, with any outcome.
// The input of the new run is an [Ended]. The new run is stored together with the end, so
// exactly one is started. It is started only the first time that a run ends: a dead run that
// is retried or canceled starts no second one. With [OnGiveUp] in the same workflow, a run
// that dies starts both.
//
// A run ends when its outcome is decided. Attempts of a run that was canceled or timed out
// may still be running then.
//
// OnEnd is part of the definition that a run keeps until its end. So the new run is started
// even if w is no longer registered; it waits in state needs-handler then.
func OnEnd(w *Workflow) Part {
	return func(b *builder) {
		switch {
		case w == nil:
			b.errs = append(b.errs, errors.New("on end: the workflow is nil"))
		case b.w.onEnd != nil:
			b.errs = append(b.errs, fmt.Errorf("on end: a workflow can start only one other workflow when it ends; got %q and %q", b.w.onEnd.Name(), w.Name()))
		}
		if b.w.onEnd = w; w != nil {
			b.w.def.OnEnd = w.def
		}
	}
}

// family returns the workflow and the workflows of its follow-up runs, recursively, each
// once.
func (w *Workflow) family() []*Workflow { return w.join(nil) }

func (w *Workflow) join(family []*Workflow) []*Workflow {
	if w == nil || slices.Contains(family, w) {
		return family
	}
	return w.onEnd.join(w.onGiveUp.join(append(family, w)))
}

// checkFamily returns an error if two workflows of the family have the same name, since
// workflows are looked up by name.
func (w *Workflow) checkFamily() error {
	names := map[string]bool{}
	for _, w := range w.family() {
		if names[w.Name()] {
			return fmt.Errorf("on give up, on end: %q is the name of two workflows that follow from each other", w.Name())
		}
		names[w.Name()] = true
	}
	return nil
}

// followUps are the workflows of the runs to start when a run ends.
type followUps struct {
	onGiveUp *Workflow           // nil for none
	onEnd    *machine.Definition // nil for none
	ended    []byte              // input of the run of onEnd
	again    *machine.Start      // the run that continues this one, or its child; nil for none
	againDef *machine.Definition // its definition
}

// followUps returns the follow-up runs to start if the record ends a run. It records their
// definitions first, because these may not fit into one entry together with the record and the
// starts. A definition without a run does no harm.
func (t *turn) followUps(rec *machine.Record) (f followUps, err error) {
	if t.next.again != nil && (rec.Kind == machine.Continued || rec.Kind == machine.Called) {
		f, t.next = t.next, followUps{}
		return f, t.define(f.againDef)
	}
	if rec.Ends == machine.Undecided {
		return f, nil
	}
	run, ok := t.o.m.Run(rec.Run)
	if !ok {
		return f, nil
	}
	if w := t.o.sh.handlers.workflow(run.Def.Name); w != nil && rec.Ends == machine.Dead {
		f.onGiveUp = w.onGiveUp
	}
	if !run.HasEnded() {
		f.onEnd = run.Def.OnEnd
	}
	if f.onGiveUp != nil {
		err = t.define(f.onGiveUp.def)
	}
	if f.onEnd != nil && err == nil {
		if f.ended, err = inputOfEnd(run, rec); err == nil {
			err = t.define(f.onEnd)
		}
	}
	return f, err
}

// inputOfEnd returns the input of the run that OnEnd starts: an Ended, for the run that the
// record ends.
func inputOfEnd(run *machine.Run, rec *machine.Record) ([]byte, error) {
	origin, key := originOf(run)
	text, err := json.Marshal(Ended{
		Run: run.ID.String(), Workflow: run.Def.Name, Key: run.Key, State: rec.Ends.String(), At: time.Unix(0, rec.At).UTC(),
		Origin: origin, OriginKey: key,
	})
	if err != nil {
		return nil, fmt.Errorf("input of the follow-up run when %s ends: %w", run.Def.Name, err)
	}
	return text, nil
}

// room returns the bytes that an entry must have left for the starts of the follow-up runs.
func (f *followUps) room() (n int) {
	const start = 1000 // bytes of a start beside its input
	if f.onGiveUp != nil {
		n += giveUpInput + start
	}
	if f.onEnd != nil {
		n += len(f.ended) + start
	}
	if f.again != nil {
		n += len(f.again.Input) + len(f.again.Trace) + len(f.again.Inbox) + start
	}
	return n
}

// startFollowUps records the starts of the follow-up runs of a run.
func (t *turn) startFollowUps(id machine.ID, f followUps) error {
	if f.onGiveUp != nil {
		if run, ok := t.o.m.Run(id); ok {
			if err := t.giveUp(run, f.onGiveUp); err != nil {
				return err
			}
		}
	}
	if f.again != nil {
		_, _, err := t.start(f.again, f.againDef)
		return err
	}
	if f.onEnd == nil {
		return nil
	}
	s := &machine.Start{Hash: f.onEnd.Hash(), Input: f.ended, Source: "on-end of " + id.String()}
	_, _, err := t.start(s, f.onEnd)
	return err
}

// GaveUp is the input of the follow-up run that [OnGiveUp] starts.
type GaveUp struct {
	// ByReference is set in the stored input of the follow-up run if Input and Outputs
	// are too large to be stored again. A handler never sees it: the engine reads both
	// from the dead run before it calls the handler, or fails the attempt. The Outputs of a
	// flow are never stored by reference.
	ByReference *GaveUpReference `json:"by_reference,omitempty"` // first: see isReference

	Run      string                     `json:"run"`
	Workflow string                     `json:"workflow"`
	Key      string                     `json:"key,omitempty"`
	Created  time.Time                  `json:"created"`
	Attempts int                        `json:"attempts"` // of all steps
	Step     string                     `json:"step"`     // the step that failed; of a flow the operation, or function if the error is not that of an operation
	Reason   string                     `json:"reason"`
	Error    string                     `json:"error"`
	Input    json.RawMessage            `json:"input,omitempty"`
	Outputs  map[string]json.RawMessage `json:"outputs,omitempty"` // outputs of the steps that succeeded, by step; of a flow, the results of its operations by name: see Operations

	// Operations has the operations of a flow that are not in Outputs, by name. If the results
	// have more than about 150 KiB together, the largest are left out of Outputs. If the names
	// alone are too large, operations with long names and large results are in neither map.
	Operations map[string]GaveUpOperation `json:"operations,omitempty"`

	// StepAttempts is the number of attempts of Step; if that is the function of a flow, of all its
	// operations. It is 0 in a run that an earlier release has started.
	StepAttempts int `json:"step_attempts,omitempty"`

	// Origin and OriginKey are the id and the key of the first run of a chain of
	// repetitions; "" if the run repeats no other.
	Origin    string `json:"origin,omitempty"`
	OriginKey string `json:"origin_key,omitempty"`
}

// GaveUpOperation is an operation of a flow without a result in [GaveUp].
type GaveUpOperation struct {
	// Status is succeeded, failed, or unfinished for an operation that had not ended when the run
	// died.
	Status  string `json:"status"`
	Code    string `json:"code,omitempty"`          // of one that failed: as in [OpError]
	Items   int    `json:"items,omitempty"`         // of a [Map] or [Children]: the number of its items
	Omitted int    `json:"omitted_bytes,omitempty"` // size of a result that was left out
}

// GaveUpReference says which parts of a [GaveUp] are read from the dead run.
type GaveUpReference struct {
	Run     string   `json:"run"`
	Bytes   int      `json:"bytes"`             // size of the complete GaveUp
	Outputs []string `json:"outputs,omitempty"` // the steps that had succeeded
}

// OnGiveUp starts a run of the workflow w, the follow-up run, whenever a run of this
// workflow dies. The input of the follow-up run is a [GaveUp]. The follow-up run is stored
// together with the death, so exactly one is started for each death.
//
// Large inputs and outputs are not stored again. They are read from the dead run when an
// attempt of the follow-up run begins. The dead run is kept until the follow-up run has
// ended. But a dead run that is canceled or replayed is kept only for Config.Retention. If
// it does not exist any more, the attempt fails with an error that says so.
func OnGiveUp(w *Workflow) Part {
	return func(b *builder) {
		if w == nil {
			b.errs = append(b.errs, errors.New("on give up: the workflow is nil"))
		}
		b.w.onGiveUp = w
	}
}

// giveUpInput is the largest input of a follow-up run that is stored as a whole, in bytes.
// An entry has room for it beside the death of the run.
const giveUpInput = 150 << 10

// giveUpSource is the prefix of Source in a follow-up run. The id of the dead run comes after
// it.
const giveUpSource = "on-give-up of "

// giveUp records the start of a follow-up run of the workflow next for a dead run.
func (t *turn) giveUp(run *machine.Run, next *Workflow) error {
	g := GaveUp{
		Run: run.ID.String(), Workflow: run.Def.Name, Key: run.Key, Created: time.Unix(0, run.Created),
		Attempts: run.Attempts(), Reason: run.Reason.String(), Input: run.Input, Outputs: map[string]json.RawMessage{},
	}
	g.Step, g.Error, _ = run.Situation()
	g.Step, g.StepAttempts = failedStep(run, g.Step)
	g.Origin, g.OriginKey = originOf(run)
	text, err := g.encode(run, min(t.o.sh.cfg.MaxPayload, giveUpInput))
	if err != nil {
		return fmt.Errorf("input of the follow-up run when %s gives up: %w", run.Def.Name, err)
	}
	if err := t.o.sh.checkMembers(next.format); err != nil {
		// A follow-up run must not be lost. The older member can't open this shard.
		t.o.sh.cfg.Logger.Warn("a follow-up run that a member of the cluster can't read was started", "run", run.ID, "workflow", next.Name(), "error", err)
	}
	_, _, err = t.start(&machine.Start{Hash: next.def.Hash(), Input: text, Source: giveUpSource + g.Run}, next.def)
	return err
}

// failedStep returns the name and the number of attempts of the step that a dead run has given up:
// in a flow, the operation whose failure has made the function give up, if there is one, and else the
// step with the given name. The attempts of a function are those of its operations.
func failedStep(run *machine.Run, step string) (name string, attempts int) {
	if run.IsFlow() {
		if op, ok := run.FailedOp(); ok {
			return label(op.Name), op.Attempts
		}
	}
	for n, s := range run.Live() {
		if run.StepName(n) == step && !run.IsFunction(n) {
			return step, int(s.Attempt)
		}
	}
	return step, run.Attempts()
}

// encode returns the stored input of the follow-up run, with the outputs of the dead run. It has at
// most this many bytes, unless the names of steps are longer.
func (g *GaveUp) encode(run *machine.Run, most int) ([]byte, error) {
	if run.IsFlow() {
		return g.encodeFlow(run, most)
	}
	for i := range run.Def.Steps {
		if out := run.Output(i); out != nil {
			g.Outputs[run.Def.Steps[i].Name] = out
		}
	}
	text, err := json.Marshal(g)
	if err != nil || len(text) <= most {
		return text, err
	}
	g.ByReference = &GaveUpReference{Run: g.Run, Bytes: len(text), Outputs: slices.Sorted(maps.Keys(g.Outputs))}
	g.Input, g.Outputs = nil, nil
	return json.Marshal(g)
}

// encodeFlow is encode for the run of a flow.
func (g *GaveUp) encodeFlow(run *machine.Run, most int) ([]byte, error) {
	if len(g.Input) > most/2 {
		g.Input, g.ByReference = nil, &GaveUpReference{Run: g.Run, Bytes: len(run.Input)}
	}
	text, err := json.Marshal(g)
	if err != nil {
		return nil, err
	}
	const empty = len(`"outputs":{},"operations":{},`) // not in text
	if err := g.addOperations(gaveUpOps(run), most-len(text)-empty); err != nil {
		return nil, err
	}
	return json.Marshal(g)
}

// gaveUpOp is an operation of a dead run.
type gaveUpOp struct {
	name      string
	result    json.RawMessage // nil if it has none
	operation GaveUpOperation // its entry without the result
}

// gaveUpOps returns the operations of a dead run, without undos and those that were skipped.
func gaveUpOps(run *machine.Run) (list []gaveUpOp) {
	for n := range run.Live() {
		if n > 0 && !run.IsUndo(n) {
			list = append(list, gaveUpOp{name: label(run.Identity(n)), operation: GaveUpOperation{Status: "unfinished"}})
		}
	}
	for res := range machine.ReadResults(run.Results()) {
		op := gaveUpOp{name: label(res.Name), operation: GaveUpOperation{Status: "succeeded"}}
		switch kind, _ := splitIdentity(res.Name); {
		case kind == machine.UndoKind, kind == machine.SkipKind:
			continue
		case res.Reason != 0:
			op.operation = GaveUpOperation{Status: "failed", Code: res.Code}
		case isMapKind(kind):
			items, _ := readItems(res.Data) // without items if they can't be read
			op.operation.Items = items.count()
		case hasResult(&res):
			op.result, op.operation.Omitted = res.Data, len(res.Data)
		}
		list = append(list, op)
	}
	return list
}

// addOperations adds the operations to g, the smallest first: their results to Outputs while there
// is room, and the others to Operations. room is how many bytes they may have as JSON.
func (g *GaveUp) addOperations(list []gaveUpOp, room int) error {
	slices.SortStableFunc(list, func(a, b gaveUpOp) int { return cmp.Compare(len(a.result), len(b.result)) })
	costs := make([]int, len(list)) // of the entries in Operations
	left := 0                       // bytes of those of operations that are not added yet
	for i := range list {
		text, err := json.Marshal(map[string]GaveUpOperation{list[i].name: list[i].operation})
		if err != nil {
			return err
		}
		costs[i] = len(text)
		left += len(text)
	}
	g.Operations = map[string]GaveUpOperation{}
	for i, op := range list {
		left -= costs[i]
		if n := len(op.result); op.result != nil && n <= room && (n+left <= room || left > room) {
			text, err := json.Marshal(map[string]json.RawMessage{op.name: op.result})
			if err != nil {
				return err
			}
			// If the names alone are too large, the smallest results are worth more than the
			// names of the others.
			if len(text)+left <= room || len(text) <= room && left > room {
				g.Outputs[op.name] = op.result
				room -= len(text)
				continue
			}
		}
		if costs[i] <= room {
			g.Operations[op.name] = op.operation
			room -= costs[i]
		}
	}
	return nil
}

// hasResult reports whether an operation has a result that is worth knowing when the run has given
// up: one of attempts, a payload, an answer or the output of a child. An undo has none.
func hasResult(res *machine.OpResult) bool {
	switch kind, _ := splitIdentity(res.Name); kind {
	case machine.AwaitKind, machine.AskKind, machine.ChildKind:
		return true
	case machine.UndoKind:
		return false
	}
	return res.Attempts > 0
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
	g.ByReference, g.Input = nil, dead.Input
	if g.Outputs == nil {
		g.Outputs = map[string]json.RawMessage{}
	}
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

// purgeEvery returns the time between two searches for runs whose retention is over.
func (o *owner) purgeEvery() time.Duration {
	return min(time.Hour, o.sh.cfg.Retention/20, o.sh.cfg.DeadRetention/20)
}

// purge deletes the runs whose retention is over, if it is time to look for them. It also
// records an entry if a snapshot needs one to begin.
func (o *owner) purge() {
	idle := o.sh.snapshots.needsEntry()
	if now := time.Now(); idle || now.Sub(o.purgedAt) >= o.purgeEvery() {
		o.purgedAt = now
		t := &o.turn
		if rec, ok := o.purgeRecord(t.now); ok || idle {
			t.must(&rec)
		}
		o.sh.views.expire = true
	}
}

// purgeRecord returns the record that deletes the runs whose retention is over, except dead
// runs that a follow-up run refers to. ok is false if there is nothing to delete.
func (o *owner) purgeRecord(now int64) (rec machine.Record, ok bool) {
	dead := now - int64(o.sh.cfg.DeadRetention)
	return o.m.Purge(now-int64(o.sh.cfg.Retention), dead, o.referenced(dead))
}

// referenced returns the dead runs whose input a follow-up run may still need. A follow-up
// run may need it until it has succeeded or was canceled, or was dead for longer than the
// retention: dead is the time before which dead runs are deleted.
func (o *owner) referenced(dead int64) map[machine.ID]bool {
	ids := map[machine.ID]bool{}
	for _, r := range o.m.All() {
		if r.Finished() || r.Closed() && r.Ended < dead {
			continue
		}
		text, follows := strings.CutPrefix(r.Source(), giveUpSource)
		switch {
		case r.IsCold(): // its input is not in memory, and may be a reference
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
