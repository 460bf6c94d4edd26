package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
)

// GaveUp is the input of a run that is started because another has died.
type GaveUp struct {
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

// OnGiveUp starts a run of another workflow whenever one of this workflow dies,
// with a [GaveUp] as its input. It is recorded together with the death, and so
// happens exactly once for each.
func OnGiveUp(w *Workflow) Part {
	return func(b *builder) {
		if w == nil {
			b.errs = append(b.errs, fmt.Errorf("on give up: no workflow"))
		}
		b.w.onGiveUp = w
	}
}

// giveUpInput is how much is told at most. The entry of the death has room for it.
const giveUpInput = 150 << 10

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
	if err == nil && len(text) > min(t.sh.cfg.MaxPayload, giveUpInput) {
		g.Input, g.Outputs = nil, nil // that it happened matters more than with what
		text, err = json.Marshal(g)
	}
	if err != nil {
		return fmt.Errorf("what is started when %s gives up: %w", run.Def.Name, err)
	}
	_, _, err = t.start(&machine.Start{Hash: next.def.Hash(), Input: text, Source: "on-give-up of " + g.Run}, next.def)
	return err
}
