package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
)

// Ended is the input of a run that is started because another has ended.
type Ended struct {
	Run      string    `json:"run"`
	Workflow string    `json:"workflow"`
	Key      string    `json:"key,omitempty"`
	State    string    `json:"state"` // succeeded, dead or canceled
	At       time.Time `json:"at"`

	// Of a repetition, the first run of the chain and its key.
	Origin    string `json:"origin,omitempty"`
	OriginKey string `json:"origin_key,omitempty"`
}

// OnEnd starts a run of another workflow when one of this workflow ends for the
// first time, with any outcome, and has an [Ended] as its input. It is recorded
// together with the end, and so happens exactly once: a dead run that is retried or
// canceled has ended before, and starts nothing when it ends again. With [OnGiveUp]
// in the same workflow, a run that dies starts both.
//
// A run ends when its outcome is decided. Attempts of one that was canceled, or
// whose time is over, may still be running then.
//
// It is part of the definition that a run follows to its end, and so happens also
// where the workflow is no longer registered; the new run waits as needs-handler then.
func OnEnd(w *Workflow) Part {
	return func(b *builder) {
		switch {
		case w == nil:
			b.errs = append(b.errs, errors.New("on end: no workflow"))
		case b.w.onEnd != nil:
			b.errs = append(b.errs, fmt.Errorf("on end: %q and %q, of which there can be one", b.w.onEnd.Name(), w.Name()))
		}
		if b.w.onEnd = w; w != nil {
			b.w.def.OnEnd = w.def
		}
	}
}

// family returns the workflow and all that may follow from its runs, each once.
func (w *Workflow) family() []*Workflow {
	return w.join(nil)
}

func (w *Workflow) join(family []*Workflow) []*Workflow {
	if w == nil || slices.Contains(family, w) {
		return family
	}
	return w.onEnd.join(w.onGiveUp.join(append(family, w)))
}

// checkFamily refuses two workflows of one name, of which one would take the place
// of the other where they are looked up.
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

// followUps are the workflows of which runs are started with the end of another run.
type followUps struct {
	onGiveUp *Workflow           // nil for none
	onEnd    *machine.Definition // the same
	ended    []byte              // input of the latter
}

// followUps returns what is to be started with the record. Their definitions are stored
// ahead of it: they can be larger than what an entry has left for all of this, and
// do no harm if nothing follows.
func (t *turn) followUps(rec *machine.Record) (f followUps, err error) {
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

// inputOfEnd returns the input of the run that follows the one that the record ends.
func inputOfEnd(run *machine.Run, rec *machine.Record) ([]byte, error) {
	origin, key := originOf(run)
	text, err := json.Marshal(Ended{
		Run: run.ID.String(), Workflow: run.Def.Name, Key: run.Key, State: rec.Ends.String(), At: time.Unix(0, rec.At).UTC(),
		Origin: origin, OriginKey: key,
	})
	if err != nil {
		return nil, fmt.Errorf("what is started when %s ends: %w", run.Def.Name, err)
	}
	return text, nil
}

// room is what an entry must have left for them.
func (f *followUps) room() (n int) {
	const start = 1000 // beside the input
	if f.onGiveUp != nil {
		n += giveUpInput + start
	}
	if f.onEnd != nil {
		n += len(f.ended) + start
	}
	return n
}

// startFollowUps starts what follows from the end of the run.
func (t *turn) startFollowUps(id machine.ID, f followUps) error {
	if f.onGiveUp != nil {
		if run, ok := t.o.m.Run(id); ok {
			if err := t.giveUp(run, f.onGiveUp); err != nil {
				return err
			}
		}
	}
	if f.onEnd == nil {
		return nil
	}
	s := &machine.Start{Hash: f.onEnd.Hash(), Input: f.ended, Source: "on-end of " + id.String()}
	_, _, err := t.start(s, f.onEnd)
	return err
}
