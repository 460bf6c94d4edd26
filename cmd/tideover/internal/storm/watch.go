package storm

import (
	"cmp"
	"slices"
	"time"
)

// Rule says what a storm is.
type Rule struct {
	Amplification float64       // attempts for each first attempt, from which on it is one
	For           time.Duration // how long it must last to begin, and be over to end
	MinAttempts   int           // with less of them in a window nothing is wrong
}

// window is the stretch over which attempts are counted. It is shorter than the
// time for which they must be too many, so that a single burst, such as a herd that
// was told the same time to come back, has left the window before that time is up.
func (r Rule) window() time.Duration { return r.For / 2 }

// calm is the amplification below which a storm may be over: a storm that hovers at
// the limit is one storm, not many.
func (r Rule) calm() float64 { return 1 + (r.Amplification-1)*3/4 }

// Subject is whose attempts are counted: a layer that retries, and which part of it.
type Subject struct {
	Layer string `json:"layer"` // workflow, session, notification, job, provider
	Name  string `json:"name"`
}

// Count is attempts since the start. Both only grow.
type Count struct {
	Attempts uint64
	First    uint64 // those of them that were no retries
}

// Level is how much retries multiply the load of a subject now.
type Level struct {
	Attempts      uint64  // in the window
	Amplification float64 // attempts for each first attempt in the window; 1 if there were none
}

// Storm is one that goes on.
type Storm struct {
	Subject
	Since         time.Time `json:"since"`         // when it began to be too much
	Amplification float64   `json:"amplification"` // attempts for each first attempt of late
	Attempts      uint64    `json:"attempts"`      // of late: in Window
	Window        float64   `json:"window_s"`
}

// Change is a storm that has begun, or ended.
type Change struct {
	Storm
	Ended bool
}

// Watch decides whether there are storms. It reads no clock and is not safe for use
// by several goroutines.
type Watch struct {
	rule  Rule
	last  time.Time // of the latest sample
	parts map[Subject]*part
}

// part is what is known of a subject.
type part struct {
	samples []sample // the first is the latest that is older than the window
	level   Level
	high    time.Time // since when there are too many attempts; zero if there are not
	low     time.Time // since when a storm is calm; zero if it is not
	storm   bool
	since   time.Time // when the storm began to be one
}

type sample struct {
	at time.Time
	Count
}

// NewWatch returns a watch that has seen nothing.
func NewWatch(r Rule) *Watch { return &Watch{rule: r, parts: map[Subject]*part{}} }

// Become changes the rule. What was seen stays.
func (w *Watch) Become(r Rule) { w.rule = r }

// Sample takes the counts of all subjects, and returns what they change. A subject
// that is not among them any more is forgotten. Samples must come more often than
// windows end.
func (w *Watch) Sample(now time.Time, counts map[Subject]Count) (changes []Change) {
	if now.Before(w.last) {
		return nil // the clock was set back
	}
	slept := !w.last.IsZero() && now.Sub(w.last) > w.rule.window()
	for s, p := range w.parts {
		if _, there := counts[s]; !there {
			delete(w.parts, s)
			if p.storm {
				changes = append(changes, Change{w.tell(s, p), true})
			}
		}
	}
	for s, c := range counts {
		p := w.part(s, now, c)
		if slept { // nobody knows what was meanwhile
			p.high, p.low = time.Time{}, time.Time{}
		}
		p.add(sample{now, c}, w.rule.window())
		if was := p.storm; p.judge(w.rule, now) != was {
			changes = append(changes, Change{w.tell(s, p), was})
		}
	}
	w.last = now
	slices.SortFunc(changes, func(a, b Change) int { return byName(a.Storm, b.Storm) })
	return changes
}

// part returns what is known of a subject. One that is new since the last sample had
// no attempts then.
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

// add adds a sample and drops those that no window begins with any more.
func (p *part) add(s sample, window time.Duration) {
	if last := p.samples[len(p.samples)-1]; s.Attempts < last.Attempts || s.First < last.First {
		p.samples = p.samples[:0] // they were counted anew
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

// judge reports whether there is a storm.
func (p *part) judge(r Rule, now time.Time) bool {
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

// mark notes since when something holds.
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

func (w *Watch) tell(s Subject, p *part) Storm {
	return Storm{s, p.since, p.level.Amplification, p.level.Attempts, w.rule.window().Seconds()}
}

// Storms returns those that go on, by layer and name.
func (w *Watch) Storms() []Storm {
	list := []Storm{}
	for s, p := range w.parts {
		if p.storm {
			list = append(list, w.tell(s, p))
		}
	}
	slices.SortFunc(list, byName)
	return list
}

// Levels returns how much retries multiply the load of each subject.
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
