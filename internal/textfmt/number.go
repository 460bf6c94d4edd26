package textfmt

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tideover/tideover/internal/decimal"
)

// Plural returns a count with a noun whose plural ends in s: "1 run", "2 runs".
func Plural(n int, noun string) string { return PluralOf(n, noun, noun+"s") }

// PluralOf returns a count with one of two forms: "1 retry", "2 retries".
func PluralOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// sizeUnits has the binary units first, which FormatSize uses.
var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1},
}

const binaryUnits = 4

// ParseSize parses a number of bytes: 500, 64KiB, 10MB, 1GiB.
func ParseSize(text string) (n int64, ok bool) {
	for _, u := range sizeUnits {
		digits, found := strings.CutSuffix(text, u.suffix)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || n > uint64(math.MaxInt64/u.bytes) {
			return 0, false
		}
		return int64(n) * u.bytes, true
	}
	return 0, false
}

// FormatSize returns the number of bytes exactly, in the largest binary unit that
// divides it: 500, 64KiB, 1GiB. [ParseSize] reads it back.
func FormatSize(n int64) string {
	for _, u := range slices.Backward(sizeUnits[:binaryUnits]) {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}

// RoundedSize returns the number of bytes with one decimal place, in the largest
// decimal unit that it fills: 500 B, 1.5 kB, 12.0 GB.
func RoundedSize(n uint64) string {
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

// ParsePercent parses a percentage above 0 and up to 100, written with digits, a point
// and a percent sign: 20%, 0.5%.
func ParsePercent(text string) (n float64, ok bool) { return parsePercent(text, decimal.Parse) }

func parsePercent(text string, parse func(string) (float64, error)) (n float64, ok bool) {
	digits, found := strings.CutSuffix(text, "%")
	n, err := parse(digits)
	if !found || err != nil || !(n > 0 && n <= 100) { // false for NaN too
		return 0, false
	}
	return n, true
}

// ParseFloatPercent is ParsePercent for every spelling of a number that Go knows, such
// as 9e1%.
func ParseFloatPercent(text string) (n float64, ok bool) {
	return parsePercent(text, func(number string) (float64, error) { return strconv.ParseFloat(number, 64) })
}

// FormatPercent returns the percentage in the shortest form that [ParsePercent] reads
// back.
func FormatPercent(n float64) string { return decimal.Format(n) + "%" }
