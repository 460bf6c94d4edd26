//go:build gc && (amd64 || arm64)

// Package goroutine tells goroutines apart.
package goroutine

// ID returns a number that no other running goroutine has. It does not change while the goroutine
// runs, and a later goroutine may have the same number. It is 0 where the processor is not known.
//
// It is the address of the goroutine's descriptor, which Go's assembler can read. To find out by
// runtime.Callers which function a goroutine began with takes a thousand times as long.
func ID() uintptr
