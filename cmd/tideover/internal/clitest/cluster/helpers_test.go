//go:build unix

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// allStopped reports whether all threads of the process have stopped.
func allStopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	return len(threads) > 0 && !slices.ContainsFunc(threads, func(name string) bool {
		status, _ := os.ReadFile(name)
		return !strings.Contains(string(status), "\nState:\tT")
	})
}
