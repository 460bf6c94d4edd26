package durable

import (
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/tideover/tideover/internal/benchreport"
)

// ownTime returns the processor time of this process.
func ownTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // not on Linux
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serverTime returns the processor time of the processes and of their children,
// including children that have ended.
func serverTime(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		own, ended, _, err := benchreport.ProcessorTime(strconv.Itoa(pid))
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
		own, ended, parent, err := benchreport.ProcessorTime(filepath.Base(dir))
		if err != nil {
			continue // it has ended
		}
		if slices.Contains(pids, parent) {
			sum += own + ended
		}
	}
	return sum, err
}

// memory adds the memory of this process to the values, in MB (1e6 bytes),
// without running the garbage collector.
func memory(values map[string]float64, when string) error {
	if err := benchreport.Memory("self", values, when); err != nil {
		return err
	}
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(heap)
	values["heap "+when] = float64(heap[0].Value.Uint64()) / 1e6
	values["live heap "+when] = float64(heap[1].Value.Uint64()) / 1e6 // as of the last garbage collection
	return nil
}
