package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tideover/tideover/bench/durable"
)

// results is what was measured, in the order in which it was measured.
type results struct {
	about   map[string]string // date, cpu, …
	modules []string          // name and version
	loads   []string          // load averages before the rounds
	systems []string
	series  map[key][]float64 // round by round
}

type key struct{ system, value string }

func parse(in io.Reader) (*results, error) {
	r := &results{about: map[string]string{}, series: map[key][]float64{}}
	sc := bufio.NewScanner(in)
	for sc.Scan() {
		text := sc.Text()
		if strings.HasPrefix(text, "{") {
			if err := r.add(text); err != nil {
				return nil, err
			}
			continue
		}
		name, value, ok := strings.Cut(text, ": ")
		switch value = strings.TrimSpace(value); {
		case !ok:
			return nil, fmt.Errorf("not a measurement: %q", text)
		case name == "module":
			r.modules = append(r.modules, value)
		case name == "load":
			r.loads = append(r.loads, value)
		default:
			r.about[name] = value
		}
	}
	if sc.Err() == nil && len(r.systems) == 0 {
		return nil, errors.New("the input has no measurements")
	}
	return r, sc.Err()
}

func (r *results) add(text string) error {
	var m durable.Result
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return fmt.Errorf("not a measurement: %q: %w", text, err)
	}
	if !slices.Contains(r.systems, m.System) {
		r.systems = append(r.systems, m.System)
	}
	for name, v := range m.Values {
		k := key{m.System, name}
		r.series[k] = append(r.series[k], v)
	}
	return nil
}

// median returns that of the rounds.
func (r *results) median(system, value string) (float64, bool) {
	v := r.series[key{system, value}]
	return median(v), len(v) > 0
}

// ratio returns the median of the ratios inside one round: the two were measured
// seconds apart, so most of the noise cancels out.
func (r *results) ratio(a, b key) (float64, bool) {
	x, y := r.series[a], r.series[b]
	var ratios []float64
	for i := range min(len(x), len(y)) {
		ratios = append(ratios, x[i]/y[i])
	}
	return median(ratios), len(ratios) > 0
}

func median(v []float64) float64 {
	n := len(v)
	if n == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(n-1)/2] + v[n/2]) / 2
}
