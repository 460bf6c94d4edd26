//go:build !unix

package connlimit

// Descriptors returns a large number: on this system only the memory limits open files.
func Descriptors() int { return 1 << 16 }
