package durable

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ownTime returns the processor time of this process.
func ownTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // not on Linux
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serverTime returns the processor time of processes and their children, those
// that have ended included.
func serverTime(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		own, ended, _, err := stat(strconv.Itoa(pid))
		if err != nil {
			return 0, err
		}
		sum += own + ended
	}
	if len(pids) == 0 {
		return 0, nil
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		own, ended, parent, err := stat(filepath.Base(dir))
		if err != nil {
			continue // it has ended
		}
		for _, pid := range pids {
			if parent == pid {
				sum += own + ended
			}
		}
	}
	return sum, err
}

// tick is the unit of times in /proc on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// stat reads the times of a process from /proc.
func stat(pid string) (own, ended time.Duration, parent int, err error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, 0, 0, err
	}
	// The name, in parentheses, may have anything in it.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var n [5]int
	for i, field := range []int{1, 11, 12, 13, 14} { // ppid, utime, stime, cutime, cstime
		if n[i], err = strconv.Atoi(fields[field]); err != nil {
			return 0, 0, 0, fmt.Errorf("/proc/%s/stat: %w", pid, err)
		}
	}
	return time.Duration(n[1]+n[2]) * tick, time.Duration(n[3]+n[4]) * tick, n[0], nil
}

// memory adds the memory of this process to the values, in MB (1e6 bytes),
// without running the garbage collector.
func memory(values map[string]float64, when string) error {
	text, err := os.ReadFile("/proc/self/status")
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
			return fmt.Errorf("/proc/self/status: %s: %w", name, err)
		}
		values[name+" "+when] = kb * 1024 / 1e6
	}
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(heap)
	values["heap "+when] = float64(heap[0].Value.Uint64()) / 1e6
	values["live heap "+when] = float64(heap[1].Value.Uint64()) / 1e6 // when the collector looked last
	return nil
}
