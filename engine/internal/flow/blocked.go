package flow

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/replay"
)

const (
	blockedAfter      = time.Minute      // a function that does not wait for an operation for this long is reported
	blockedCheckEvery = 10 * time.Second // how often that is checked, at most
)

// Blocked returns a warning for each function that has neither called an operation nor returned
// for long: it waits for something that is not an operation, or computes. It holds its run up, and
// nothing else shows that. isChecked is false if it was called before a short time ago.
func (a *Calls) Blocked() (list []info.Trouble, isChecked bool) {
	gap := a.now.Sub(a.checked)
	if gap < blockedCheckEvery {
		return nil, false
	}
	if a.checked = a.now; gap > 2*blockedAfter {
		return nil, false // the owner could not store: functions may wait for it
	}
	for id, c := range a.running {
		since := a.now.Sub(c.since)
		if c.waits() || c.ended.Load() || since < blockedAfter {
			c.blocked = false
			continue
		}
		text := fmt.Sprintf("it has neither called an operation nor returned for %v: it waits for something else, such as a lock or a channel, or computes; do such work in engine.Do with a timeout, and restart the process if the function does not continue", since.Round(time.Second))
		list = append(list, info.Trouble{What: fmt.Sprintf("run %s: the function of workflow %s is blocked", id, c.workflow.Name()), Since: c.since, Error: text})
		if !c.blocked {
			c.blocked = true
			a.settings.report(replay.Verdict{Failed: text})
			a.settings.Logger.Warn("the function of a run is blocked", "run", id.String(), "workflow", c.workflow.Name(), "why", text)
		}
	}
	slices.SortFunc(list, func(a, b info.Trouble) int { return strings.Compare(a.What, b.What) })
	return list, true
}
