package strictyaml

import (
	"fmt"
	"strings"
)

// hints maps words that other tools use for a setting to our key for it.
var hints = map[string]string{
	"command": "run", "cmd": "run", "exec": "run", "args": "run", "script": "run", "shell": "run",
	"depends-on": "needs", "depends_on": "needs", "after": "needs", "requires": "needs",
	"retry": "policy", "retries": "policy", "attempts": "policy", "backoff": "policy",
	"timeout": "the policy's attempt-timeout or total-timeout", "attempt-timeout": "policy", "total-timeout": "policy",
	"cron": "schedule", "every": "schedule", "name": "id", "cwd": "dir", "workdir": "dir", "working-directory": "dir",
	"environment": "env", "url": "one of get, post, put, patch, delete, head", "method": "one of get, post, put, patch, delete, head",
	"api-key": "auth", "api_key": "auth", "apikey": "auth", "key": "auth", "keys": "auth", "token": "auth",
	"address": "listen", "port": "listen", "bind": "listen", "state": "data", "on-failure": "on-give-up",
}

// UnknownKey returns the message about an unknown key. It suggests the key that is
// probably meant, or else lists the known keys.
func UnknownKey(name string, known []string) string {
	msg := fmt.Sprintf("key %q is unknown", name)
	if best := Nearest(name, known); best != "" {
		return msg + fmt.Sprintf("; did you mean %q?", best)
	}
	if hint := hints[strings.ToLower(name)]; hint != "" {
		for _, k := range known {
			if strings.Contains(hint, k) {
				return msg + "; use " + hint
			}
		}
	}
	return msg + "; want " + strings.Join(known, ", ")
}

// UnknownName returns the message about an unknown name, such as
// `unknown step "bild"; did you mean "build"?`. The argument what names the kind of thing,
// in the singular, such as "step".
func UnknownName(what, name string, known []string) string {
	return fmt.Sprintf("unknown %s %q; %s", what, name, SuggestName(what, name, known))
}

// SuggestName returns the second half of UnknownName: the name that is probably meant,
// or else the first ten known names.
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
