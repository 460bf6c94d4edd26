package config

import (
	"path"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/lazyregexp"
)

// stdinIndex is the key in commandLine.bad for a problem with standard input.
const stdinIndex = -1

// Messages about a template in a command.
const (
	choosesProgram = "a template can't be the program: the sender of a job could choose the program"
	writesScript   = "a template can't be part of a shell script: the sender of a job could run commands"
	readsScript    = writesScript + "; a shell without a script runs its standard input"
	behindScript   = writesScript + `; pass it as an argument after the script, which reads it as "$1": [sh, -c, 'agent "$1"', sh, "{{ .input.task }}"]`
)

// commandLine finds templates in a command that would let the sender of a job run
// any command. It is strict: after a shell it rejects every template that is not known to be
// harmless, and after -c or -e of any program it rejects every template.
type commandLine struct {
	run          []*template.Text
	foreignStdin bool           // the sender of a job may have written the command's standard input
	bad          map[int]string // messages by the index of the argument, or by stdinIndex
}

// check fills c.bad with all problems of the command.
func (c *commandLine) check() {
	c.checkPrograms()
	for k := 0; k < len(c.run); k++ {
		switch name := c.name(k); {
		case slices.Contains(shells, name):
			k = c.checkScript(k, shellScript(c.run[k:]), true)
		case interpreter.MatchString(name):
			k = c.checkScript(k, interpreterScript(name, c.run[k:]), false)
		case slices.Contains(remote, name):
			c.checkRemote(k)
		}
	}
	c.checkOptions()
}

func (c *commandLine) refuse(i int, why string) {
	if c.bad[i] == "" {
		c.bad[i] = why
	}
}

func (c *commandLine) foreign(i int) bool { return i < len(c.run) && c.run[i].Foreign() }

// name returns the argument without folders, for a comparison with names of programs.
func (c *commandLine) name(i int) string { return path.Base(c.run[i].Literal()) }

var (
	shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "rbash", "pwsh", "powershell"}
	// interpreter matches programs whose first argument is a script or the path of a script.
	interpreter = lazyregexp.New(`^(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|tclsh|wish|expect|osascript|Rscript|groovy|awk|gawk|mawk|nawk|sed|gsed)[0-9.]*$`)
	// wrappers run the program that their arguments name.
	wrappers = []string{
		"env", "timeout", "gtimeout", "nice", "ionice", "nohup", "setsid", "sudo", "doas", "time", "stdbuf", "taskset", "chroot", "busybox", "toybox", "xargs",
		"exec", "command", "flock", "strace", "unshare", "nsenter", "systemd-run", "setpriv", "runuser", "chrt", "prlimit", "script", "firejail", "bwrap",
	}
	// remote are programs that join their arguments and pass them to a shell.
	remote = []string{"ssh", "rsh", "mosh", "watch", "parallel", "eval"}

	assignment = lazyregexp.New(`^([A-Za-z_][A-Za-z0-9_]*)=`)
	withWord   = lazyregexp.New(`^-[ugskndpUCGPILE]$`) // options of wrappers that take an argument, such as a user or a signal
)

// checkPrograms refuses a template as the name of a program: of the command itself, or of
// the program that a wrapper such as env runs.
func (c *commandLine) checkPrograms() {
	for k := 0; k < len(c.run); k = c.wrappedProgram(k) {
		if c.foreign(k) {
			c.refuse(k, choosesProgram)
			return
		}
		if !slices.Contains(wrappers, c.name(k)) {
			return
		}
	}
}

// wrappedProgram returns the index of the program that the wrapper at k runs, or of the
// first argument that may be that program. It returns len(c.run) if there is none.
func (c *commandLine) wrappedProgram(k int) int {
	for k++; k < len(c.run); k++ {
		word := c.run[k].Literal()
		m := assignment.FindStringSubmatch(c.run[k].Source())
		switch {
		case m != nil && !(c.foreign(k) && programVariables.Has(m[1])):
		case c.foreign(k):
			return k
		case withWord.MatchString(word) && !c.foreign(k+1):
			k++
		case word == "" || word[0] != '-' && (word[0] < '0' || word[0] > '9'):
			return k
		}
	}
	return k
}

// checkScript checks the script of the shell or interpreter at k. The script is argument
// k+i; if i is 0, the program runs its standard input. checkScript returns the index of
// the last argument that it has covered.
func (c *commandLine) checkScript(k, i int, shell bool) int {
	switch {
	case i > 0 && c.foreign(k+i) && shell:
		c.refuse(k+i, behindScript)
	case i > 0 && c.foreign(k+i):
		c.refuse(k+i, "a template can't be the script of "+c.name(k)+": the sender of a job could run commands; pass it as an argument after the script")
	case i == 0 && c.foreignStdin:
		c.refuse(stdinIndex, readsScript)
	}
	if last := c.run[k+max(i, 1)-1].Literal(); i > 1 && shell && strings.HasPrefix(last, "-") && strings.HasSuffix(last, "c") {
		return k + i + 1 // skip $0, the argument after the script, which is often sh again
	}
	return k + i
}

// checkRemote refuses templates in the arguments of the program at k, which passes them
// to a shell.
func (c *commandLine) checkRemote(k int) {
	words := 0
	for i := k + 1; i < len(c.run); i++ {
		if c.foreign(i) {
			c.refuse(i, "a template can't be an argument of "+c.name(k)+", which passes it to a shell: the sender of a job could run commands")
		} else if !strings.HasPrefix(c.run[i].Literal(), "-") {
			words++
		}
	}
	if words < 2 && c.foreignStdin { // at most a host and no command, so the shell runs its standard input
		c.refuse(stdinIndex, readsScript)
	}
}

// evalFlag matches options whose argument is a script in many programs. checkOptions
// assumes that it is a script in all programs.
var evalFlag = lazyregexp.New(`^(-[cCeE]|-[lix]{1,2}c|-ec|-[npl]{1,3}e|-(exec|execdir|ok|okdir)|/[cCkK]|--?(eval|command|exec|execute|expression|init-command|split-string)|-[cC]ommand)$`)

// attachedFlag matches an option with a script as its argument, if both are one word, as in
// --eval=X.
var attachedFlag = lazyregexp.New(`^(-[ceES]=?\{\{|--(eval|command|exec|execute|expression|init-command|split-string)=)`)

// checkOptions refuses templates behind options whose argument is a script.
func (c *commandLine) checkOptions() {
	for i := 1; i < len(c.run); i++ {
		flag := c.run[i-1].Literal()
		switch {
		case !c.foreign(i):
		case evalFlag.MatchString(flag):
			c.refuse(i, "a template can't follow "+flag+", where many programs expect a script: the sender of a job could run commands")
		case attachedFlag.MatchString(c.run[i].Source()):
			c.refuse(i, "a template can't be used where many programs expect a script: the sender of a job could run commands")
		}
	}
}

// shellScript returns the index of the argument that is the script of a shell or the path
// of the script: the first argument that is not an option. run[0] is the shell. 0 means
// that the shell runs its standard input.
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

// interpreterScript is shellScript for interpreters of other languages. The script is the
// argument of an option such as -e, or else the first argument that is neither an option
// nor the argument of an option.
func interpreterScript(name string, run []*template.Text) int {
	for i := 1; i < len(run); i++ {
		switch word := run[i].Literal(); {
		case run[i].Foreign():
			return i
		case word == "-":
			return 0
		case isScriptOption(name, word) && i+1 < len(run):
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

// optionWords are options of interpreters that take an argument. The -v of awk sets a
// variable, in which a template is harmless.
var optionWords = []string{"-W", "-X", "-I", "-r", "--require", "--import", "-F", "-v", "-d", "-L"}

// isScriptOption reports whether the argument after an option of an interpreter is a script
// or the path of a script. Letters can be combined, as in perl -lane.
func isScriptOption(name, word string) bool {
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
