package chaos

import (
	"maps"
	"slices"
	"time"
)

// Stats is what has happened since the start, or since the rules were replaced or
// reset.
type Stats struct {
	Spec     string    `json:"spec"`
	Since    time.Time `json:"since"`
	Requests int       `json:"requests"` // those for the control endpoint not counted

	Rules     []RuleStats    `json:"rules"`     // in order
	Unmatched int            `json:"unmatched"` // answered with 404, because no rule is for them
	Answers   map[string]int `json:"answers"`   // of all rules, by what the spec calls them

	InProgress  int `json:"in_progress"`
	Peak        int `json:"peak"`        // the most in progress at once
	Gone        int `json:"gone"`        // whose clients did not wait for the end of the answer
	Open        int `json:"open"`        // connections now
	Connections int `json:"connections"` // accepted

	Arrivals Histogram `json:"arrivals"`
	Log      []Arrival `json:"log"` // the latest 1000
}

// RuleStats is what has happened by one rule.
type RuleStats struct {
	Rule     string         `json:"rule"`
	Requests int            `json:"requests"`
	Answers  map[string]int `json:"answers"` // by what the spec calls them
	By       map[string]int `json:"by"`      // script, random, over or down
}

// Arrival is one request.
type Arrival struct {
	Number int           `json:"number"` // of all, from 1
	At     time.Duration `json:"at_ns"`  // since the start
	Method string        `json:"method"`
	Path   string        `json:"path"` // without the query
	Proto  string        `json:"proto"`
	Rule   int           `json:"rule"`   // its number, from 1; 0 for none
	Nth    int           `json:"nth"`    // request of the rule, from 1
	Answer string        `json:"answer"` // as the spec has it
	Status int           `json:"status,omitempty"`
	By     string        `json:"by"` // script, random, over, down or unmatched
}

// maxLog is how many arrivals are kept.
const maxLog = 1000

// Histogram counts requests by when they came.
type Histogram struct {
	Width  time.Duration `json:"width_ns"` // of a bucket; it doubles when there is no room for more
	Counts []int         `json:"counts"`   // the first is that of the start
}

// maxBuckets is how many a histogram has at most; firstWidth is their width at
// first.
const (
	maxBuckets = 100
	firstWidth = 100 * time.Millisecond
)

func (h *Histogram) add(at time.Duration) {
	if h.Width == 0 {
		h.Width = firstWidth
	}
	for at >= maxBuckets*h.Width {
		for i := range (len(h.Counts) + 1) / 2 {
			n := h.Counts[2*i]
			if 2*i+1 < len(h.Counts) {
				n += h.Counts[2*i+1]
			}
			h.Counts[i] = n
		}
		h.Counts = h.Counts[:(len(h.Counts)+1)/2]
		h.Width *= 2
	}
	i := int(at / h.Width)
	for len(h.Counts) <= i {
		h.Counts = append(h.Counts, 0)
	}
	h.Counts[i]++
}

// newStats returns empty ones for a spec.
func newStats(spec Spec, now time.Time) *Stats {
	s := &Stats{Spec: spec.String(), Since: now, Answers: map[string]int{}, Log: []Arrival{}, Arrivals: Histogram{Width: firstWidth, Counts: []int{}}}
	for _, r := range spec.Rules {
		s.Rules = append(s.Rules, RuleStats{Rule: r.String(), Answers: map[string]int{}, By: map[string]int{}})
	}
	return s
}

// count notes a request.
func (s *Stats) count(a Arrival) {
	s.Requests++
	s.Answers[a.Answer]++
	s.Arrivals.add(a.At)
	if len(s.Log) == maxLog {
		s.Log = s.Log[1:]
	}
	s.Log = append(s.Log, a)
	if a.Rule == 0 {
		s.Unmatched++
		return
	}
	r := &s.Rules[a.Rule-1]
	r.Requests++
	r.Answers[a.Answer]++
	r.By[a.By]++
}

// clone returns a copy that shares nothing.
func (s *Stats) clone() Stats {
	c := *s
	c.Answers = maps.Clone(s.Answers)
	c.Rules = slices.Clone(s.Rules)
	for i, r := range c.Rules {
		c.Rules[i].Answers, c.Rules[i].By = maps.Clone(r.Answers), maps.Clone(r.By)
	}
	c.Arrivals.Counts = slices.Clone(s.Arrivals.Counts)
	c.Log = slices.Clone(s.Log)
	return c
}
