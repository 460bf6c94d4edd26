package chaos

import (
	"maps"
	"slices"
	"time"
)

// Stats are counts since the start, or since the rules were replaced or
// reset.
type Stats struct {
	Spec     string    `json:"spec"`
	Since    time.Time `json:"since"`
	Requests int       `json:"requests"` // without requests to the control endpoint

	Rules     []RuleStats    `json:"rules"`     // in order
	Unmatched int            `json:"unmatched"` // requests that no rule matches, answered with 404
	Answers   map[string]int `json:"answers"`   // number of each answer of all rules, in the form of the spec

	InProgress  int `json:"in_progress"`
	Peak        int `json:"peak"`        // greatest number of requests in progress at a time
	Gone        int `json:"gone"`        // requests whose client disconnected before the end of the answer
	Open        int `json:"open"`        // open connections
	Connections int `json:"connections"` // accepted connections

	Arrivals Histogram `json:"arrivals"`
	Log      []Arrival `json:"log"` // the latest 1000 requests
}

// RuleStats are the counts of one rule.
type RuleStats struct {
	Rule     string         `json:"rule"`
	Requests int            `json:"requests"`
	Answers  map[string]int `json:"answers"` // number of each answer, in the form of the spec
	By       map[string]int `json:"by"`      // script, random, over or down
}

// Arrival is one request and its answer.
type Arrival struct {
	Number int           `json:"number"` // number among all requests, from 1
	At     time.Duration `json:"at_ns"`  // since the start
	Method string        `json:"method"`
	Path   string        `json:"path"` // without the query
	Proto  string        `json:"proto"`
	Rule   int           `json:"rule"`   // number of the rule, from 1; 0 for none
	Nth    int           `json:"nth"`    // number among the requests of the rule, from 1
	Answer string        `json:"answer"` // in the form of the spec
	Status int           `json:"status,omitempty"`
	By     string        `json:"by"` // script, random, over, down or unmatched
}

// maxLog is the number of requests in Stats.Log.
const maxLog = 1000

// Histogram counts requests by time of arrival.
type Histogram struct {
	Width  time.Duration `json:"width_ns"` // width of a bucket; it doubles when maxBuckets are not enough
	Counts []int         `json:"counts"`   // requests in each bucket, from the start on
}

// maxBuckets is the greatest number of buckets; firstWidth is their width at
// the start.
const (
	maxBuckets = 100
	firstWidth = 100 * time.Millisecond
)

func (h *Histogram) add(at time.Duration) {
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

// newStats returns empty statistics for a spec.
func newStats(spec Spec, now time.Time) *Stats {
	s := &Stats{Spec: spec.String(), Since: now, Answers: map[string]int{}, Log: []Arrival{}, Arrivals: Histogram{Width: firstWidth, Counts: []int{}}}
	for _, r := range spec.Rules {
		s.Rules = append(s.Rules, RuleStats{Rule: r.String(), Answers: map[string]int{}, By: map[string]int{}})
	}
	return s
}

// count counts a request.
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

// clone returns a deep copy.
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
