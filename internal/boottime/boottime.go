// Package boottime measures time that no change of the clock affects and that other processes
// of the machine can use: the time since its boot.
package boottime
