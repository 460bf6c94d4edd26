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

	"github.com/tideover/tideover/internal/benchreport"
)

// results has the measurements in the order of the input.
type results struct {
	about     map[string]string // date, goos, goarch, cpu
	modules   []string          // path and version
	scenarios []*scenario
}

type scenario struct {
	name  string
	peers []*series // the first is the baseline
}

// series has the measurements of one library (a peer) in one scenario, round by
// round.
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
	return find(r.scenarios, func(c *scenario) bool { return c.name == name })
}

func (c *scenario) peer(name string) *series {
	return find(c.peers, func(s *series) bool { return s.peer == name })
}

// find returns the first element for which wanted returns true, or nil.
func find[T any](list []*T, wanted func(*T) bool) *T {
	if i := slices.IndexFunc(list, wanted); i >= 0 {
		return list[i]
	}
	return nil
}

// ratio returns the median, over all rounds, of the ratio to the baseline in the same
// round.
func (c *scenario) ratio(s *series) float64 {
	return benchreport.Median(benchreport.Ratios(s.cpu, c.peers[0].cpu))
}

// number parses a number. The regular expression has matched s, so there is no error.
func number(s string) float64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(err)
	}
	return f
}
