package gateway

import (
	"slices"
	"time"
)

// Result is one measurement: what was measured, and numbers by their names.
type Result struct {
	Scenario string             `json:"scenario"`
	System   string             `json:"system"`
	Values   map[string]float64 `json:"values"`
	Failure  string             `json:"failure,omitempty"` // the first of those that the values count
}

// quantiles adds median, 99th percentile and largest of the times to the values,
// in ms. It sorts them.
func quantiles(values map[string]float64, name string, times []time.Duration) {
	if len(times) == 0 {
		return
	}
	slices.Sort(times)
	at := func(q float64) float64 { return ms(times[int(q*float64(len(times)-1))]) }
	values[name+" p50"], values[name+" p99"], values[name+" max"] = at(0.5), at(0.99), at(1)
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }
