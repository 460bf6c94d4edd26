package config

import (
	"path"
	"slices"
	"strings"
)

// strangers refuses templates where whoever asks for a job could make something
// else of it: which program runs, what a shell does, which host is asked. A
// workflow is started by people who are known; a job by everybody.
func (l *loader) strangers(d *stepDraft, found map[string]place) {
	if d.IsHTTP() {
		l.strangersHost(d, found["http"])
		return
	}
	at := found["run"]
	if len(d.run) == 0 || len(d.run) != len(at.node.items) {
		return // something is wrong with it already
	}
	if !d.run[0].constant() {
		l.bad(at.index(0), "a template can't say which program runs: whoever asks for a job could choose it")
	}
	if slices.Contains(shells, path.Base(d.run[0].literal())) {
		l.strangersScript(d, at, found["stdin"])
	}
}

var shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "fish"}

// strangersScript refuses a template in what a shell runs.
func (l *loader) strangersScript(d *stepDraft, run, stdin place) {
	const why = "a template can't be what a shell runs: whoever asks for a job could write commands"
	switch i := shellScript(d.run); {
	case i > 0 && !d.run[i].constant():
		l.bad(run.index(i), `%s; give it behind the script, which has it as "$1": [sh, -c, 'agent "$1"', sh, "{{ .input.task }}"]`, why)
	case i == 0 && d.stdin != nil && !d.stdin.constant():
		l.bad(stdin, "%s, and without a script it runs what it reads", why)
	}
}

// shellScript returns which argument is a shell's script, or the path of one: the
// first that is no option. 0 means that the shell reads it.
func shellScript(run []*text) int {
	for i := 1; i < len(run); i++ {
		switch word := run[i].literal(); {
		case !run[i].constant() || word == "" || word[0] != '-' && word[0] != '+':
			return i
		case word == "--rcfile" || word == "--init-file":
			i++ // it has an argument
		case strings.HasPrefix(word, "--"):
		case strings.Contains(word, "s"):
			return 0
		case strings.ContainsAny(word, "oO"):
			i++ // as in -euo pipefail
		}
	}
	return 0
}

// strangersHost refuses a template before the path of a URL.
func (l *loader) strangersHost(d *stepDraft, at place) {
	if d.url == nil || d.Provider != "" {
		return // the provider says which host
	}
	masked := reference.ReplaceAllString(filler.ReplaceAllString(d.url.src, fillMark), refMark)
	if _, rest, ok := strings.Cut(masked, "://"); ok {
		masked = rest
	}
	if i := strings.IndexAny(masked, "/?#"); i >= 0 {
		masked = masked[:i]
	}
	if method := strings.ToLower(d.Method); strings.Contains(masked, fillMark) || strings.Contains(masked, "{{") {
		l.bad(at.child(method, at.node.get(method)), "a template can't say which host is asked: whoever asks for a job could choose it")
	}
}
