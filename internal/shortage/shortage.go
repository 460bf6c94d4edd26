// Package shortage recognises errors that mean that this machine, or this
// process, lacks a resource: file descriptors, memory, processes. Such an error
// is not caused by the work. It uses no attempt of a policy, and the work is
// retried after a delay.
package shortage

import (
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"
)

// codes are the system errors that mean a shortage: too many open files in this
// process or on this machine, no memory, and no capacity for another process or
// thread.
var codes = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN}

// Error is a shortage that another process has reported. Only its text is known.
type Error struct{ Text string }

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Is reports whether the error means that this machine lacks a resource.
func Is(err error) bool {
	_, reported := errors.AsType[*Error](err)
	dns, isDNS := errors.AsType[*net.DNSError](err)
	return reported || slices.ContainsFunc(codes, func(code syscall.Errno) bool {
		// The resolver of package net keeps only the text of the system's error.
		return errors.Is(err, code) || isDNS && strings.HasSuffix(dns.Err, ": "+code.Error())
	})
}

// Note returns the text about a shortage in the history of a run.
func Note(err error) string {
	return "this machine is short of descriptors, memory or processes, and no attempt is spent: " + err.Error()
}

// The delay before the work is tried again.
const (
	minDelay = time.Second
	maxDelay = 30 * time.Second
)

// Delay returns how long to wait after a shortage. before is the number of
// shortages in a row before this one. The delay doubles from 1 s up to 30 s, less a
// random part of up to a half, so that work that was stopped together does not
// restart together.
func Delay(before int) time.Duration {
	d := maxDelay
	if before >= 0 && before < 5 {
		d = min(minDelay<<before, maxDelay)
	}
	return d - time.Duration(rand.Int64N(int64(d/2)))
}
