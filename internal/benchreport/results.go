package benchreport

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Results has all measurements, in the order in which they were made.
type Results struct {
	About   map[string]string // the environment: date, cores, …
	Modules []string          // name and version of each measured module
	Loads   []string          // load averages before the rounds
	Systems []string
	series  map[Key][]float64 // round by round
}

// Key names a value of a system.
type Key struct{ system, value string }

// Of returns the key of a system's value.
func Of(system, value string) Key { return Key{system, value} }

// Parse reads lines of JSON with a [Result] each, and lines such as "go: go1.26.0".
func Parse(in io.Reader) (*Results, error) {
	r := &Results{About: map[string]string{}, series: map[Key][]float64{}}
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
			r.Modules = append(r.Modules, value)
		case name == "load":
			r.Loads = append(r.Loads, value)
		default:
			r.About[name] = value
		}
	}
	if sc.Err() == nil && len(r.Systems) == 0 {
		return nil, errors.New("the input has no measurements")
	}
	return r, sc.Err()
}

func (r *Results) add(text string) error {
	var m Result
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return fmt.Errorf("not a measurement: %q: %w", text, err)
	}
	if !slices.Contains(r.Systems, m.System) {
		r.Systems = append(r.Systems, m.System)
	}
	for name, v := range m.Values {
		k := Key{m.System, name}
		r.series[k] = append(r.series[k], v)
	}
	return nil
}

// Measure returns a number of the results, and false if it was not measured.
type Measure func(*Results) (float64, bool)

// Median is the [Measure] of the median of the rounds.
func (k Key) Median(r *Results) (float64, bool) { return Median(r.series[k]), len(r.series[k]) > 0 }

// Total is the [Measure] of the sum over the rounds.
func (k Key) Total(r *Results) (sum float64, ok bool) {
	for _, v := range r.series[k] {
		sum += v
	}
	return sum, len(r.series[k]) > 0
}

// Over returns the [Measure] of the ratio to the other value: the median of the ratios of
// all rounds. Within a round the two were measured in turn, so most of the noise cancels
// out.
func (k Key) Over(other Key) Measure {
	return k.within(other, func(x, y float64) float64 { return x / y })
}

// Minus is Over for the difference instead of the ratio.
func (k Key) Minus(other Key) Measure {
	return k.within(other, func(x, y float64) float64 { return x - y })
}

func (k Key) within(other Key, f func(x, y float64) float64) Measure {
	return func(r *Results) (float64, bool) {
		x, y := r.series[k], r.series[other]
		var list []float64
		for i := range min(len(x), len(y)) {
			list = append(list, f(x[i], y[i]))
		}
		return Median(list), len(list) > 0
	}
}

// Ratios returns the ratio of a to b in each round, except for rounds in which b is 0.
// Values of the same round were measured seconds apart, so most of the noise cancels out.
func Ratios(a, b []float64) (list []float64) {
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			list = append(list, a[i]/b[i])
		}
	}
	return list
}

// Median returns the median of the values, and 0 if there are none.
func Median(v []float64) float64 {
	n := len(v)
	if n == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(n-1)/2] + v[n/2]) / 2
}
