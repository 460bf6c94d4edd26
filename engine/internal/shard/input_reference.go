package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/retry"
)

// completeInput returns the input for a handler: a GaveUp that is stored by reference
// is completed from the dead run. A step that has succeeded never runs again, so its
// output is what it was when the run died.
func completeInput(ctx context.Context, others Peers, input json.RawMessage) (json.RawMessage, error) {
	if !workflow.IsReference(input) {
		return input, nil
	}
	var g info.GaveUp
	if err := json.Unmarshal(input, &g); err != nil {
		return nil, retry.Permanent(fmt.Errorf("input of the run: %w", err))
	}
	ref := g.ByReference
	if ref == nil {
		return input, nil
	}
	dead, err := others.Read(ctx, ref.Run)
	if errors.Is(err, machine.ErrUnknown) {
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

// giveUpSource is the prefix of Source in a follow-up run. The id of the dead run comes after
// it.
const giveUpSource = "on-give-up of "
