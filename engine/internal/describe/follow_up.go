package describe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
)

// Ended returns the input of the run that OnEnd starts: an Ended, for the run that the
// record ends.
func Ended(run *machine.Run, rec *machine.Record) ([]byte, error) {
	origin, key := OriginOf(run)
	text, err := json.Marshal(info.Ended{
		Run: run.ID.String(), Workflow: run.Def.Name, Key: run.Key, State: rec.Ends.String(), At: time.Unix(0, rec.At).UTC(),
		Origin: origin, OriginKey: key,
	})
	if err != nil {
		return nil, fmt.Errorf("input of the follow-up run when %s ends: %w", run.Def.Name, err)
	}
	return text, nil
}

// failedStep returns the name and the number of attempts of the step that a dead run has given up:
// in a flow, the operation whose failure has made the function give up, if there is one, and else the
// step with the given name. The attempts of a function are those of its operations.
func failedStep(run *machine.Run, step string) (name string, attempts int) {
	if run.IsFlow() {
		if op, ok := run.Flow().FailedOp(); ok {
			return machine.OpName(op.Name), op.Attempts
		}
	}
	for n, s := range run.Live() {
		if run.StepName(n) == step && !run.IsFunction(n) {
			return step, int(s.Attempt)
		}
	}
	return step, run.Attempts()
}

// GaveUp returns the stored input of the run that OnGiveUp starts, with the outputs of the dead run. It
// has at most this many bytes, unless the names of steps are longer.
func GaveUp(run *machine.Run, most int) ([]byte, error) {
	g := &info.GaveUp{
		Run: run.ID.String(), Workflow: run.Def.Name, Key: run.Key, Created: time.Unix(0, run.Created),
		Attempts: run.Attempts(), Reason: run.Reason.String(), Input: run.Input, Outputs: map[string]json.RawMessage{},
	}
	g.Step, g.Error, _ = machine.Situation(run)
	g.Step, g.StepAttempts = failedStep(run, g.Step)
	g.Origin, g.OriginKey = OriginOf(run)
	if run.IsFlow() {
		return encodeFlow(g, run, most)
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
	g.ByReference = &info.GaveUpReference{Run: g.Run, Bytes: len(text), Outputs: slices.Sorted(maps.Keys(g.Outputs))}
	g.Input, g.Outputs = nil, nil
	return json.Marshal(g)
}

// encodeFlow is GaveUp for the run of a flow.
func encodeFlow(g *info.GaveUp, run *machine.Run, most int) ([]byte, error) {
	if len(g.Input) > most/2 {
		g.Input, g.ByReference = nil, &info.GaveUpReference{Run: g.Run, Bytes: len(run.Input)}
	}
	text, err := json.Marshal(g)
	if err != nil {
		return nil, err
	}
	const empty = len(`"outputs":{},"operations":{},`) // not in text
	if err := addOperations(g, gaveUpOps(run), most-len(text)-empty); err != nil {
		return nil, err
	}
	return json.Marshal(g)
}

// gaveUpOp is an operation of a dead run.
type gaveUpOp struct {
	name      string
	result    json.RawMessage      // nil if it has none
	operation info.GaveUpOperation // its entry without the result
}

// gaveUpOps returns the operations of a dead run, without undos and those that were skipped.
func gaveUpOps(run *machine.Run) (list []gaveUpOp) {
	for n := range run.Live() {
		if n > 0 && !machine.OpKindOf(run.Flow().Identity(n)).IsOptional {
			list = append(list, gaveUpOp{name: machine.OpName(run.Flow().Identity(n)), operation: info.GaveUpOperation{Status: "unfinished"}})
		}
	}
	for res := range machine.ReadResults(run.Flow().Results()) {
		op := gaveUpOp{name: machine.OpName(res.Name), operation: info.GaveUpOperation{Status: "succeeded"}}
		switch kind := machine.OpKindOf(res.Name); {
		case kind.IsOptional:
			continue
		case res.Reason != 0:
			op.operation = info.GaveUpOperation{Status: "failed", Code: res.Code}
		case kind.Items != "":
			items, _ := machine.ReadItems(res.Data) // without items if they can't be read
			op.operation.Items = items.Count()
		case kind.IsShown && kind.Waits != machine.ForNothing: // of attempts, a payload, an answer or the output of a child
			op.result, op.operation.Omitted = res.Data, len(res.Data)
		}
		list = append(list, op)
	}
	return list
}

// addOperations adds the operations to g, the smallest first: their results to Outputs while there
// is room, and the others to Operations. room is how many bytes they may have as JSON.
func addOperations(g *info.GaveUp, list []gaveUpOp, room int) error {
	slices.SortStableFunc(list, func(a, b gaveUpOp) int { return cmp.Compare(len(a.result), len(b.result)) })
	costs := make([]int, len(list)) // of the entries in Operations
	left := 0                       // bytes of those of operations that are not added yet
	for i := range list {
		text, err := json.Marshal(map[string]info.GaveUpOperation{list[i].name: list[i].operation})
		if err != nil {
			return err
		}
		costs[i] = len(text)
		left += len(text)
	}
	g.Operations = map[string]info.GaveUpOperation{}
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
