package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// results are the measurements, in their order.
type results struct {
	about     map[string]string // date, goos, goarch, cpu
	modules   []string          // path and version
	scenarios []*scenario
}

type scenario struct {
	name  string
	peers []*series // the first is the baseline
}

// series is one peer in one scenario, round by round.
type series struct {
	peer          string
	cpu, wall     []float64 // ns/op
	bytes, allocs float64   // per op
}

var line = regexp.MustCompile(`^Benchmark(\w+)/peer=(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op\s+([\d.]+) cpu-ns/op\s+(\d+) B/op\s+(\d+) allocs/op`)

func parse(in io.Reader) (*results, error) {
	r := &results{about: map[string]string{}}
	sc := bufio.NewScanner(in)
	for sc.Scan() {
		text := sc.Text()
		if m := line.FindStringSubmatch(text); m != nil {
			r.add(m)
		} else if strings.HasPrefix(text, "Benchmark") {
			return nil, fmt.Errorf("not a measurement: %q", text)
		} else if key, value, ok := strings.Cut(text, ": "); ok && key == "module" {
			r.modules = append(r.modules, value)
		} else if ok {
			r.about[key] = strings.TrimSpace(value)
		}
	}
	if sc.Err() == nil && len(r.scenarios) == 0 {
		return nil, errors.New("the input has no measurements")
	}
	return r, sc.Err()
}

func (r *results) add(m []string) {
	s := r.series(m[1], m[2])
	s.wall = append(s.wall, number(m[3]))
	s.cpu = append(s.cpu, number(m[4]))
	s.bytes, s.allocs = number(m[5]), number(m[6])
}

// series returns the series of the peer in the scenario, and adds it if it is
// missing.
func (r *results) series(name, peer string) *series {
	c := r.scenario(name)
	if c == nil {
		c = &scenario{name: name}
		r.scenarios = append(r.scenarios, c)
	}
	s := c.peer(peer)
	if s == nil {
		s = &series{peer: peer}
		c.peers = append(c.peers, s)
	}
	return s
}

func (r *results) scenario(name string) *scenario {
	i := slices.IndexFunc(r.scenarios, func(c *scenario) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return r.scenarios[i]
}

func (c *scenario) peer(name string) *series {
	i := slices.IndexFunc(c.peers, func(s *series) bool { return s.peer == name })
	if i < 0 {
		return nil
	}
	return c.peers[i]
}

// ratio is the median of the ratios to the baseline inside one round: the two
// were measured seconds apart, so most of the noise cancels out.
func (c *scenario) ratio(s *series) float64 {
	base := c.peers[0]
	var ratios []float64
	for i := range min(len(s.cpu), len(base.cpu)) {
		ratios = append(ratios, s.cpu[i]/base.cpu[i])
	}
	return median(ratios)
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// number parses what the regular expression has matched as a number.
func number(s string) float64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(err)
	}
	return f
}
