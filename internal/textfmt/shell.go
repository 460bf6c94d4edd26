package textfmt

import "strings"

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
