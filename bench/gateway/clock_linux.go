package gateway

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// clock is a ticker of the kernel (timerfd), which is read like a connection. The timers
// of the Go runtime wake an idle process up to a millisecond late, which is more than
// most of the latencies that are measured.
type clock struct{ file *os.File }

// newClock returns a clock that ticks first after one interval.
func newClock(every time.Duration) (*clock, error) {
	const monotonic = 1
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, monotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return nil, fmt.Errorf("timerfd_create: %w", errno)
	}
	c := &clock{os.NewFile(fd, "timer")}
	t := syscall.NsecToTimespec(int64(every))
	setting := struct{ every, first syscall.Timespec }{t, t}
	if _, _, errno := syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(&setting)), 0, 0, 0); errno != 0 {
		c.stop()
		return nil, fmt.Errorf("timerfd_settime: %w", errno)
	}
	return c, nil
}

// wait returns at the next tick, at once if one was missed.
func (c *clock) wait() error {
	var ticks [8]byte
	_, err := c.file.Read(ticks[:])
	return err
}

func (c *clock) stop() { c.file.Close() }
