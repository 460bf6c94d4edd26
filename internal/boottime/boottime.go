// Package boottime returns the time since the boot of the machine. It is the same for all
// processes, and changes of the system clock do not affect it.
package boottime

import "time"

// Wall returns what the wall clock of this machine shows at a time, in Unix nanoseconds. The tests
// of a cluster replace this file, to build processes with clocks that differ.
func Wall(t time.Time) int64 { return t.UnixNano() }
