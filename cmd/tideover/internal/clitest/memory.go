//go:build unix

package clitest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// PeakMemory returns the peak memory of the process in bytes.
func PeakMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	return Atoi(strings.Fields(rest + " 0")[0]) << 10
}

// MemorySlack is how many bytes more a process may use for a lot of output than for a little.
const MemorySlack = 32 << 20
