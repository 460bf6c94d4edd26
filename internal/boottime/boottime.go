// Package boottime returns the time since the boot of the machine. It is the same for all
// processes, and changes of the system clock do not affect it.
package boottime
