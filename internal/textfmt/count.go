package textfmt

import "strconv"

// Plural returns a count with a noun whose plural ends in s: "1 run", "2 runs".
func Plural(n int, noun string) string { return PluralOf(n, noun, noun+"s") }

// PluralOf returns a count with one of two forms: "1 retry", "2 retries".
func PluralOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
