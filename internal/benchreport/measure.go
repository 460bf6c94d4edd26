// Package benchreport has the code that the benchmarks share: the form of a measurement,
// the processor time and the memory of a process from /proc, and the tables of the pages
// that their reports write.
package benchreport

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Result is one measurement: what was measured, and numbers by their names.
type Result struct {
	Scenario string             `json:"scenario"`
	System   string             `json:"system"`
	Values   map[string]float64 `json:"values"`
	Failure  string             `json:"failure,omitempty"` // text of the first failure; empty if there was none
}

// Quantiles adds the median, the 99th percentile and the maximum of the times to the
// values, in ms. It sorts times.
func Quantiles(values map[string]float64, name string, times []time.Duration) {
	if len(times) == 0 {
		return
	}
	slices.Sort(times)
	at := func(q float64) float64 { return float64(times[int(q*float64(len(times)-1))]) / 1e6 }
	values[name+" p50"], values[name+" p99"], values[name+" max"] = at(0.5), at(0.99), at(1)
}

// tick is the unit of times in /proc on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// ProcessorTime returns the processor time of a process, that of its children that have
// ended, and the id of its parent.
func ProcessorTime(pid string) (own, ended time.Duration, parent int, err error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, 0, 0, err
	}
	// The name, in parentheses, may contain any character.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var n [5]int
	for i, field := range []int{1, 11, 12, 13, 14} { // ppid, utime, stime, cutime, cstime
		if n[i], err = strconv.Atoi(fields[field]); err != nil {
			return 0, 0, 0, fmt.Errorf("/proc/%s/stat: %w", pid, err)
		}
	}
	return time.Duration(n[1]+n[2]) * tick, time.Duration(n[3]+n[4]) * tick, n[0], nil
}

// Memory adds the resident memory of a process to the values, and its peak, in
// MB (1e6 bytes). The names of the values end with when.
func Memory(pid string, values map[string]float64, when string) error {
	path := "/proc/" + pid + "/status"
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		if name != "VmRSS" && name != "VmHWM" {
			continue
		}
		kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", path, name, err)
		}
		values[name+" "+when] = kb * 1024 / 1e6
	}
	return nil
}
