//go:build !unix

package connlimit

// Descriptors returns how many descriptors this process may have: here there is no such limit, and memory
// is what connections use up.
func Descriptors() int { return 1 << 16 }
