package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tideover/tideover/bench/gateway"
)

// results is what was measured, in the order in which it was measured.
type results struct {
	about   map[string]string // date, cores, …
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
	var m gateway.Result
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

// total returns the sum over the rounds.
func (r *results) total(system, value string) (sum float64, ok bool) {
	for _, v := range r.series[key{system, value}] {
		sum, ok = sum+v, true
	}
	return sum, ok
}

// ratio returns the median of the ratios inside one round: there the two were
// measured in turn, so most of the noise cancels out.
func (r *results) ratio(value, a, b string) (float64, bool) {
	return r.within(value, a, b, func(x, y float64) float64 { return x / y })
}

// difference is the same for what a adds to b.
func (r *results) difference(value, a, b string) (float64, bool) {
	return r.within(value, a, b, func(x, y float64) float64 { return x - y })
}

func (r *results) within(value, a, b string, f func(x, y float64) float64) (float64, bool) {
	x, y := r.series[key{a, value}], r.series[key{b, value}]
	var list []float64
	for i := range min(len(x), len(y)) {
		list = append(list, f(x[i], y[i]))
	}
	return median(list), len(list) > 0
}

func median(v []float64) float64 {
	n := len(v)
	if n == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(n-1)/2] + v[n/2]) / 2
}
