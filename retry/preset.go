package retry

import (
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/limit"
)

// preset is a named policy.
type preset struct {
	name, use string
	policy    Policy
}

func exponential(base, limit time.Duration, jitter backoff.Band, attempts int) Policy {
	s := backoff.Schedule{Kind: backoff.Exponential, Base: base, Cap: limit, Jitter: jitter}
	return Policy{Schedule: s, Attempts: attempts}
}

const ms, sec, minute = time.Millisecond, time.Second, time.Minute

var tenth, fifth = backoff.PlusMinus(0.1), backoff.PlusMinus(0.2)

// presets is in the order in which a person should read it.
var presets = func() []preset {
	byDefault := exponential(50*ms, 20*sec, backoff.Full, 3)
	byDefault.ThrottleBase = sec
	byDefault.TotalTimeout = 30 * sec
	byDefault.Budget = limit.Refund(1, 0.1, 10)

	contention := exponential(10*ms, sec, backoff.Plus(0.5), 7)
	contention.MaxDoublings = 6

	return []preset{
		{"default", "calls between services, from evidence", byDefault},
		{"daemon", "a long-running session that hits limits", exponential(30*sec, 5*minute, tenth, 6)},
		{"workflow", "a workflow step", Policy{
			Schedule: backoff.Schedule{Kind: backoff.Fixed, Base: sec, Cap: 5 * minute}, Attempts: 3,
		}},
		{"workflow-api", "a workflow step that calls a remote API", exponential(sec, minute, backoff.Wide, 5)},
		{"contention", "writers that collide on one thing", contention},
		{"http", "remote APIs", exponential(sec, 32*sec, fifth, 4)},
		{"http-conservative", "remote APIs, where the call must get through", exponential(500*ms, minute, fifth, 6)},
		{"http-interactive", "remote APIs, where a person waits", exponential(500*ms, 8*sec, fifth, 3)},
		{"http-batch", "remote APIs, for batch jobs", exponential(2*sec, 32*sec, fifth, 4)},
		{"task", "a delegated task", exponential(sec, 30*sec, backoff.None, 4)},
	}
}()

// Preset returns the named policy.
func Preset(name string) (Policy, bool) {
	i := slices.IndexFunc(presets, func(p preset) bool { return p.name == name })
	if i < 0 {
		return Policy{}, false
	}
	return presets[i].policy, true
}

// Presets yields the names of all presets and what each is for.
func Presets(yield func(name, use string) bool) {
	for _, p := range presets {
		if !yield(p.name, p.use) {
			return
		}
	}
}

func presetList() string {
	names := make([]string, len(presets))
	for i, p := range presets {
		names[i] = p.name
	}
	return strings.Join(names, ", ")
}
