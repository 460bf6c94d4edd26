package process

import (
	"slices"
	"strings"
)

// builtins are words of the shell that no file stands for, or none that does the
// same.
var builtins = []string{
	".", "alias", "bg", "builtin", "case", "cd", "declare", "eval", "exec", "exit", "export", "fg", "for", "function", "hash", "if", "jobs",
	"let", "local", "popd", "pushd", "read", "return", "set", "shift", "source", "trap", "type", "ulimit", "umask", "unalias", "unset", "until",
	"wait", "while",
}

// hint says what may help against a start that failed, behind the cause.
func (e *StartError) hint() string {
	switch {
	case e.Code != CodeNotFound:
		return ""
	case slices.Contains(builtins, e.Name):
		return "; it is a word of the shell, so use sh -c '" + e.Name + " ...'"
	case strings.ContainsAny(e.Name, " |&;<>$="):
		return "; there is no shell in between, so use sh -c '...' for one"
	}
	return ""
}
