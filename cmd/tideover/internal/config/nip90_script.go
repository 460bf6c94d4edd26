package config

import (
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
)

// shellScript returns which argument is a shell's script, or the path of one: the
// first that is no option. 0 means that the shell reads it.
func shellScript(run []*template.Text) int {
	for i := 1; i < len(run); i++ {
		switch word := run[i].Literal(); {
		case !run[i].IsConstant() || word == "" || word[0] != '-' && word[0] != '+':
			return i
		case word == "--rcfile" || word == "--init-file":
			if i++; i < len(run) && run[i].Foreign() {
				return i
			}
		case strings.HasPrefix(word, "--"):
		case strings.Contains(word, "s"):
			return 0
		case strings.ContainsAny(word, "oO"):
			i++ // as in -euo pipefail
		}
	}
	return 0
}

// interpreted is shellScript for other languages: the first argument that is no
// option and none of an option, or what stands behind the option for a script.
func interpreted(name string, run []*template.Text) int {
	for i := 1; i < len(run); i++ {
		switch word := run[i].Literal(); {
		case run[i].Foreign():
			return i
		case word == "-":
			return 0
		case isEval(name, word) && i+1 < len(run):
			return i + 1
		case slices.Contains(optionWords, word):
			if i++; i < len(run) && run[i].Foreign() && !(word == "-v" && strings.Contains(name, "awk")) {
				return i
			}
		case !strings.HasPrefix(word, "-"):
			return i
		}
	}
	return 0
}

// optionWords are options of interpreters that have an argument. The -v of an awk
// is a variable, and so a good place for a stranger's words.
var optionWords = []string{"-W", "-X", "-I", "-r", "--require", "--import", "-F", "-v", "-d", "-L"}

// isEval reports whether an option of an interpreter is followed by a script, or by
// the path of one. Letters can stand together, as in perl -lane.
func isEval(name, word string) bool {
	if !strings.HasPrefix(word, "-") || len(word) < 2 {
		return false
	}
	letters := "ceEp"
	switch {
	case strings.HasPrefix(word, "--"):
		return slices.Contains([]string{"--eval", "--print", "--execute", "--expression", "--file", "--run"}, word)
	case strings.HasPrefix(name, "php"):
		letters = "rf"
	case strings.Contains(name, "awk") || strings.HasSuffix(name, "sed"):
		letters = "ef"
	}
	return strings.Contains(letters, word[len(word)-1:])
}
