package boottime

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7 // CLOCK_BOOTTIME of clock_gettime(2)

var bootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
})

// Elapsed returns the time since the machine's boot, sleep included, and the id
// of that boot, which is "" if it is not known.
func Elapsed() (time.Duration, string) {
	var t syscall.Timespec
	// The call never blocks, so the scheduler need not know of it.
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		return 0, ""
	}
	return time.Duration(t.Nano()), bootID()
}
