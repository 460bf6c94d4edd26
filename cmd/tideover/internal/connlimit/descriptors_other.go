//go:build !unix

package connlimit

// Descriptors returns a large number: there is no limit on this system, only memory.
func Descriptors() int { return 1 << 16 }
