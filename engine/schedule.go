package engine

import (
	"context"
	"time"

	"github.com/tideover/tideover/engine/internal/shard"
)

// SetSchedules replaces all schedules. A schedule that has not changed keeps its next
// start. If a workflow is not registered, the error is [ErrUnknownWorkflow] and nothing
// changes. In a cluster the workflow must be registered in this process, or have been
// started or scheduled before by a process that knows it.
func (e *Engine) SetSchedules(ctx context.Context, list []Schedule) error {
	return e.router.SetSchedules(ctx, list)
}

// Schedules returns all schedules. It fails if a shard does not answer.
func (e *Engine) Schedules(ctx context.Context) ([]Schedule, error) {
	return e.router.Schedules(ctx)
}

// PauseSchedule stops a schedule: it starts no run until [Engine.ResumeSchedule]. The pause is
// stored. by names the user, as in [Engine.Cancel]. To pause a schedule that is paused changes
// nothing. If there is no schedule of the name, the error is [ErrNoSchedule].
func (e *Engine) PauseSchedule(ctx context.Context, name, by string) error {
	return e.router.ChangeSchedule(ctx, &shard.Call{Op: shard.OpPauseSchedule, Text: name, By: by})
}

// ResumeSchedule ends the pause of a schedule. Its next start is the next time of its cron
// expression; starts that it missed while it was paused are not made up for.
func (e *Engine) ResumeSchedule(ctx context.Context, name, by string) error {
	return e.router.ChangeSchedule(ctx, &shard.Call{Op: shard.OpResumeSchedule, Text: name, By: by})
}

// ParseCron returns the first time after the given one at which a cron expression is due.
// It fails if the expression is not valid or is never due.
func ParseCron(text string, after time.Time) (next time.Time, err error) {
	return shard.ParseCron(text, after)
}
