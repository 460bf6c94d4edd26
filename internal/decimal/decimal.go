// Package decimal reads and writes numbers as the text form of a policy spells
// them: digits and a point, without sign or exponent.
package decimal

import (
	"strconv"
	"strings"
)

// Parse reads a plain decimal number.
func Parse(s string) (float64, error) {
	if strings.Trim(s, "0123456789.") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(s, 64)
}

// Format returns the shortest spelling from which Parse returns the same number.
func Format(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
