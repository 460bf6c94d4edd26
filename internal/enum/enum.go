// Package enum converts small integer types to the names of their values and back.
package enum

import (
	"fmt"
	"slices"
)

// Name returns names[v], or the name of the type with the number if v has no name.
func Name[T ~uint8](names []string, v T, typ string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", typ, uint8(v))
}

// Parse returns the value that has the name, and false if there is none.
func Parse[T ~uint8](names []string, name string) (T, bool) {
	i := slices.Index(names, name)
	return T(max(i, 0)), i >= 0
}
