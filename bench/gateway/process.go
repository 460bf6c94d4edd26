package gateway

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// processorTime returns user and system time of the process that is measured.
func (e endpoint) processorTime() (time.Duration, error) {
	if e.pid == 0 {
		return 0, nil
	}
	path := fmt.Sprintf("/proc/%d/stat", e.pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may have anything in it.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("%s: %q", path, text)
	}
	var sum time.Duration
	for _, field := range fields[11:13] { // utime, stime
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// memory adds the resident memory of the process to the values, and its peak,
// in MB (1e6 bytes).
func (e endpoint) memory(values map[string]float64, when string) error {
	path := fmt.Sprintf("/proc/%d/status", e.pid)
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
