// Package decimal parses and formats numbers in the text form of a policy:
// digits and a point, without sign or exponent.
package decimal

import (
	"strconv"
	"strings"
)

// Parse parses a decimal number.
func Parse(s string) (float64, error) {
	if strings.Trim(s, "0123456789.") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(s, 64)
}

// Format returns the shortest text that Parse converts to the same number.
func Format(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
