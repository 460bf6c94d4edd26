// Package bytesize writes sizes for people.
package bytesize

import "fmt"

// Text returns a number of bytes in the largest unit that it fills.
func Text(n uint64) string {
	for _, u := range []struct {
		bytes uint64
		name  string
	}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if n >= u.bytes {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.bytes), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
