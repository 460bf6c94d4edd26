package steps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// given is the input of the workflow that runs when another gave up.
type given struct {
	Run    config.RunInfo             `json:"run"`
	Input  json.RawMessage            `json:"input,omitempty"`
	Steps  map[string]json.RawMessage `json:"steps,omitempty"`
	Step   string                     `json:"step"`
	Error  string                     `json:"error"`
	Reason string                     `json:"reason"`
}

// giveUpData returns what the templates of on-give-up see: the run that gave up,
// and all of its steps. One without a result has the exit code -1.
func (r *Runner) giveUpData(t *engine.Task) (config.Data, error) {
	var g given
	if err := json.Unmarshal(t.Input, &g); err != nil {
		return config.Data{}, fmt.Errorf("input of the run: %w", err)
	}
	d := config.Data{Steps: map[string]config.StepResult{}, Secrets: r.Secrets(), Run: g.Run}
	if len(g.Input) > 0 {
		if err := json.Unmarshal(g.Input, &d.Input); err != nil {
			return d, fmt.Errorf("input of the run: %w", err)
		}
	}
	for name, text := range g.Steps {
		d.Steps[name] = config.StepResult{Exit: -1}
		if text == nil || string(text) == "null" {
			continue
		}
		res, err := stepResult(text)
		if err != nil {
			return d, fmt.Errorf("result of %q: %w", name, err)
		}
		d.Steps[name] = res
	}
	return d, nil
}

// recent is how far back dead runs are looked at when the server starts, for
// whom on-give-up may not have been started.
const recent = 24 * time.Hour

// GiveUps starts on-give-up for every run that gives up, until the context ends.
// The key of its run makes sure that it is started once, also if the server was
// ended in between.
func GiveUps(ctx context.Context, e *engine.Engine, log *slog.Logger) {
	start := func(id string) {
		if err := startGiveUp(ctx, e, id); err != nil && ctx.Err() == nil {
			log.Error("on-give-up was not started", "run", id, "error", err)
		}
	}
	events := e.Events(ctx, engine.Now)
	page, err := e.List(ctx, engine.Filter{States: []string{"dead"}, Limit: 1000})
	if err != nil {
		log.Error("dead runs can't be listed", "error", err)
	}
	for _, i := range page.Runs {
		if i.Ended != nil && time.Since(*i.Ended) < recent {
			start(i.ID)
		}
	}
	for ev, missed := range events {
		if missed > 0 {
			log.Warn("events were missed: on-give-up may start late", "events", missed)
		}
		if ev.Kind == retry.GaveUp && ev.Step == "" {
			start(ev.Run)
		}
	}
}

func startGiveUp(ctx context.Context, e *engine.Engine, id string) error {
	i, err := e.Get(ctx, id)
	if err != nil {
		return err
	}
	w, ok := e.Workflow(i.Workflow + giveUpSuffix)
	if !ok || i.State != "dead" || i.Ended == nil {
		return nil
	}
	g := given{
		Run:   config.RunInfo{ID: i.ID, Workflow: i.Workflow, Key: i.Key, Attempt: i.Attempts, Started: i.Created},
		Input: i.Input, Step: i.Step, Error: i.Error, Reason: i.Reason, Steps: map[string]json.RawMessage{},
	}
	for _, s := range i.Steps {
		g.Steps[s.Name] = s.Output
	}
	key := engine.Key(fmt.Sprintf("on-give-up/%s/%d", i.ID, i.Ended.UnixNano()))
	_, err = e.Start(ctx, w, g, key, engine.Source("on-give-up of "+i.ID))
	if errors.Is(err, engine.ErrTooLarge) {
		// The message matters more than what it is about.
		g.Input, g.Steps = nil, nil
		_, err = e.Start(ctx, w, g, key, engine.Source("on-give-up of "+i.ID))
	}
	return err
}
