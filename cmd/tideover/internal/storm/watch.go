package storm

import (
	"cmp"
	"slices"
	"time"
)

// Rule says when there is a retry storm.
type Rule struct {
	Amplification float64       // attempts per first attempt above which there is a storm
	For           time.Duration // how long the load must be high for a storm to begin, and low for it to end
	MinAttempts   int           // fewer attempts in a window are never a storm
}

// window is the period over which attempts are counted. It is shorter than For, so that a single
// burst, such as many clients with the same Retry-After, has left the window before For has passed.
func (r Rule) window() time.Duration { return r.For / 2 }

// calm is the amplification below which a storm may end. It is lower than the limit, so that a load
// near the limit is one storm and not many.
func (r Rule) calm() float64 { return 1 + (r.Amplification-1)*3/4 }

// Subject is something whose attempts are counted, such as one workflow or one provider.
type Subject struct {
	Layer string `json:"layer"` // workflow, session, notification, job, provider
	Name  string `json:"name"`
}

// Count has the numbers of attempts since the start. Both fields only grow.
type Count struct {
	Attempts uint64
	First    uint64 // attempts that were not retries
}

// Level is the current amplification of a subject.
type Level struct {
	Attempts      uint64  // in the window
	Amplification float64 // attempts per first attempt in the window; 1 if there were none
}

// Storm is a current storm.
type Storm struct {
	Subject
	Since         time.Time `json:"since"`         // when the load became too high
	Amplification float64   `json:"amplification"` // attempts per first attempt in Window
	Attempts      uint64    `json:"attempts"`      // in Window
	Window        float64   `json:"window_s"`
}

// Change is the beginning or the end of a storm.
type Change struct {
	Storm
	Ended bool
}

// Watch decides whether there are storms. It does not read a clock and is not safe for concurrent
// use.
type Watch struct {
	rule  Rule
	last  time.Time // of the latest sample
	parts map[Subject]*part
}

// part is the state of a subject.
type part struct {
	samples []sample // the first is the newest one older than the window
	level   Level
	high    time.Time // since when the load is too high; zero if it is not
	low     time.Time // since when the load is low enough; zero if it is not
	storm   bool
	since   time.Time // when the storm began
}

type sample struct {
	at time.Time
	Count
}

// NewWatch returns a watch without samples.
func NewWatch(r Rule) *Watch { return &Watch{rule: r, parts: map[Subject]*part{}} }

// Sample adds the counts of all subjects and returns the storms that begin or end with them. Subjects
// that are not in counts are removed. The time between two samples must be shorter than the window.
func (w *Watch) Sample(now time.Time, counts map[Subject]Count) (changes []Change) {
	if now.Before(w.last) {
		return nil // the clock was set back
	}
	slept := !w.last.IsZero() && now.Sub(w.last) > w.rule.window()
	for s, p := range w.parts {
		if _, there := counts[s]; !there {
			delete(w.parts, s)
			if p.storm {
				changes = append(changes, Change{w.storm(s, p), true})
			}
		}
	}
	for s, c := range counts {
		p := w.part(s, now, c)
		if slept { // there was a gap in the samples
			p.high, p.low = time.Time{}, time.Time{}
		}
		p.add(sample{now, c}, w.rule.window())
		if was := p.storm; p.update(w.rule, now) != was {
			changes = append(changes, Change{w.storm(s, p), was})
		}
	}
	w.last = now
	slices.SortFunc(changes, func(a, b Change) int { return byName(a.Storm, b.Storm) })
	return changes
}

// part returns the state of a subject. For a new subject it assumes that there were no attempts
// before the last sample.
func (w *Watch) part(s Subject, now time.Time, c Count) *part {
	p := w.parts[s]
	if p == nil {
		p = &part{samples: []sample{{now, c}}}
		if !w.last.IsZero() {
			p.samples[0] = sample{at: w.last}
		}
		w.parts[s] = p
	}
	return p
}

// add adds a sample and drops those before the window.
func (p *part) add(s sample, window time.Duration) {
	if last := p.samples[len(p.samples)-1]; s.Attempts < last.Attempts || s.First < last.First {
		p.samples = p.samples[:0] // the counter was reset
	}
	p.samples = append(p.samples, s)
	keep := 0
	for keep+1 < len(p.samples) && !p.samples[keep+1].at.After(s.at.Add(-window)) {
		keep++
	}
	p.samples = slices.Delete(p.samples, 0, keep)
	attempts, first := s.Attempts-p.samples[0].Attempts, s.First-p.samples[0].First
	p.level = Level{attempts, 1}
	if attempts > 0 {
		p.level.Amplification = float64(attempts) / float64(max(first, 1))
	}
}

// update updates the state and reports whether there is a storm.
func (p *part) update(r Rule, now time.Time) bool {
	enough := p.level.Attempts >= uint64(r.MinAttempts)
	mark(&p.high, enough && p.level.Amplification > r.Amplification, now)
	mark(&p.low, p.level.Attempts < uint64(r.MinAttempts+1)/2 || p.level.Amplification < r.calm(), now)
	switch {
	case !p.storm && lasts(p.high, now, r.For):
		p.storm, p.since = true, p.high
	case p.storm && lasts(p.low, now, r.For):
		p.storm = false
	}
	return p.storm
}

// mark sets *since to the time since when a condition holds, or to zero if it does not hold now.
func mark(since *time.Time, holds bool, now time.Time) {
	if !holds {
		*since = time.Time{}
	} else if since.IsZero() {
		*since = now
	}
}

func lasts(since, now time.Time, d time.Duration) bool {
	return !since.IsZero() && now.Sub(since) >= d
}

func (w *Watch) storm(s Subject, p *part) Storm {
	return Storm{s, p.since, p.level.Amplification, p.level.Attempts, w.rule.window().Seconds()}
}

// Storms returns the current storms, sorted by layer and name.
func (w *Watch) Storms() []Storm {
	list := []Storm{}
	for s, p := range w.parts {
		if p.storm {
			list = append(list, w.storm(s, p))
		}
	}
	slices.SortFunc(list, byName)
	return list
}

// Levels returns the current amplification of each subject.
func (w *Watch) Levels() map[Subject]Level {
	levels := make(map[Subject]Level, len(w.parts))
	for s, p := range w.parts {
		levels[s] = p.level
	}
	return levels
}

func byName(a, b Storm) int {
	return cmp.Or(cmp.Compare(a.Layer, b.Layer), cmp.Compare(a.Name, b.Name))
}
