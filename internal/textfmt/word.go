package textfmt

import (
	"fmt"
	"strings"
)

// Nearest returns the known word that is most similar to the word, "" if none is similar
// enough.
func Nearest(word string, known []string) (best string) {
	word = strings.ReplaceAll(strings.ToLower(word), "_", "-")
	if len(word) < 2 || len(word) > 64 || len(known) > 200 { // a word of one letter is similar to any other short word
		return ""
	}
	least := 1 + max(1, len(word)/3)
	for _, k := range known {
		if d := distance(word, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance returns how many letters must be added, removed, changed or swapped
// with their neighbour to make one word of the other.
func distance(a, b string) int {
	prev2, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := prev[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, prev[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], prev2[j-2]+1)
			}
		}
		prev2, prev, row = prev, row, prev2
	}
	return prev[len(b)]
}

// plainChars are the characters that have no special meaning in a shell.
const plainChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@%+"

// ShellWord quotes a word for a shell, if necessary.
func ShellWord(word string) string {
	if word != "" && strings.Trim(word, plainChars) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// ShellWords returns words as a command line for a shell.
func ShellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = ShellWord(w)
	}
	return strings.Join(quoted, " ")
}

// SuggestName returns a hint for an unknown name: the known name that is probably meant, or else the
// first ten. The argument what names the kind of thing, in the singular, such as "step".
func SuggestName(what, name string, known []string) string {
	const most = 10
	if best := Nearest(name, known); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	switch n := len(known); {
	case n == 0:
		return fmt.Sprintf("no %ss are defined", what)
	case n > most:
		return fmt.Sprintf("known %ss: %s and %d more", what, strings.Join(known[:most], ", "), n-most)
	default:
		return fmt.Sprintf("known %ss: %s", what, strings.Join(known, ", "))
	}
}
