package config

import (
	"path"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/lazyregexp"
)

// readsIt stands for the index of an argument where what the command reads is meant.
const readsIt = -1

// What is wrong with a template in a command.
const (
	choosesProgram = "a template can't say which program runs: whoever asks for a job could choose it"
	writesScript   = "a template can't be what a shell runs: whoever asks for a job could write commands"
	readsScript    = writesScript + ", and without a script it runs what it reads"
	behindScript   = writesScript + `; give it behind the script, which has it as "$1": [sh, -c, 'agent "$1"', sh, "{{ .input.task }}"]`
)

// commandLine is a command in which a stranger's words are looked for. It is careful:
// what is not known to be harmless behind a shell is refused, and so is what stands
// behind -c or -e, whatever the program.
type commandLine struct {
	run          []*template.Text
	foreignStdin bool           // a stranger may have written what the command reads
	bad          map[int]string // what is wrong, by argument; or by readsIt
}

// judge finds all that is wrong.
func (c *commandLine) judge() {
	c.programs()
	for k := 0; k < len(c.run); k++ {
		switch name := c.name(k); {
		case slices.Contains(shells, name):
			k = c.script(k, shellScript(c.run[k:]), true)
		case interpreter.MatchString(name):
			k = c.script(k, interpreted(name, c.run[k:]), false)
		case slices.Contains(remote, name):
			c.joined(k)
		}
	}
	c.evaluated()
}

func (c *commandLine) refuse(i int, why string) {
	if c.bad[i] == "" {
		c.bad[i] = why
	}
}

func (c *commandLine) foreign(i int) bool { return i < len(c.run) && c.run[i].Foreign() }

// name returns the program that an argument would be.
func (c *commandLine) name(i int) string { return path.Base(c.run[i].Literal()) }

var (
	shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "rbash", "pwsh", "powershell"}
	// interpreter is a program whose first argument is a script, or the path of one.
	interpreter = lazyregexp.New(`^(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|tclsh|wish|expect|osascript|Rscript|groovy|awk|gawk|mawk|nawk|sed|gsed)[0-9.]*$`)
	// wrappers run the program that their arguments name.
	wrappers = []string{
		"env", "timeout", "gtimeout", "nice", "ionice", "nohup", "setsid", "sudo", "doas", "time", "stdbuf", "taskset", "chroot", "busybox", "toybox", "xargs",
		"exec", "command", "flock", "strace", "unshare", "nsenter", "systemd-run", "setpriv", "runuser", "chrt", "prlimit", "script", "firejail", "bwrap",
	}
	// remote are programs that have a shell read their arguments, all of them as one text.
	remote = []string{"ssh", "rsh", "mosh", "watch", "parallel", "eval"}

	assignment = lazyregexp.New(`^([A-Za-z_][A-Za-z0-9_]*)=`)
	withWord   = lazyregexp.New(`^-[ugskndpUCGPILE]$`) // of wrappers: a user, a number, a signal
)

// programs refuses a template for what runs: the command itself, or what env and the
// like are told to run.
func (c *commandLine) programs() {
	for k := 0; k < len(c.run); k = c.wrapped(k) {
		if c.foreign(k) {
			c.refuse(k, choosesProgram)
			return
		}
		if !slices.Contains(wrappers, c.name(k)) {
			return
		}
	}
}

// wrapped returns which argument of a wrapper is the program that it runs, or may
// become it.
func (c *commandLine) wrapped(k int) int {
	for k++; k < len(c.run); k++ {
		word := c.run[k].Literal()
		m := assignment.FindStringSubmatch(c.run[k].Source())
		switch {
		case m != nil && !(c.foreign(k) && isLoader(m[1])):
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

// script judges what a shell or the like at k runs, the argument i behind it, and
// returns where to look further. 0 means that it runs what it reads.
func (c *commandLine) script(k, i int, shell bool) int {
	switch {
	case i > 0 && c.foreign(k+i) && shell:
		c.refuse(k+i, behindScript)
	case i > 0 && c.foreign(k+i):
		c.refuse(k+i, "a template can't be what "+c.name(k)+" runs: whoever asks for a job could write commands; give it behind the script")
	case i == 0 && c.foreignStdin:
		c.refuse(readsIt, readsScript)
	}
	if last := c.run[k+max(i, 1)-1].Literal(); i > 1 && shell && strings.HasPrefix(last, "-") && strings.HasSuffix(last, "c") {
		return k + i + 1 // the next is $0, and often sh again
	}
	return k + i
}

// joined refuses templates among what a shell elsewhere reads.
func (c *commandLine) joined(k int) {
	words := 0
	for i := k + 1; i < len(c.run); i++ {
		if c.foreign(i) {
			c.refuse(i, "a template can't be an argument of "+c.name(k)+", which has a shell read it: whoever asks for a job could write commands")
		} else if !strings.HasPrefix(c.run[i].Literal(), "-") {
			words++
		}
	}
	if words < 2 && c.foreignStdin { // a host at most
		c.refuse(readsIt, readsScript)
	}
}

// evalFlag is an option whose argument is a script, of so many programs that it is
// taken for one of all.
var evalFlag = lazyregexp.New(`^(-[cCeE]|-[lix]{1,2}c|-ec|-[npl]{1,3}e|-(exec|execdir|ok|okdir)|/[cCkK]|--?(eval|command|exec|execute|expression|init-command|split-string)|-[cC]ommand)$`)

// attachedFlag is the same with a template for its argument.
var attachedFlag = lazyregexp.New(`^(-[ceES]=?\{\{|--(eval|command|exec|execute|expression|init-command|split-string)=)`)

// evaluated refuses templates that an option says are a script.
func (c *commandLine) evaluated() {
	for i := 1; i < len(c.run); i++ {
		flag := c.run[i-1].Literal()
		switch {
		case !c.foreign(i):
		case evalFlag.MatchString(flag):
			c.refuse(i, "a template can't stand behind "+flag+", where many programs have a script: whoever asks for a job could write commands")
		case attachedFlag.MatchString(beforeTemplate(c.run[i].Source())):
			c.refuse(i, "a template can't stand where many programs have a script: whoever asks for a job could write commands")
		}
	}
}

// beforeTemplate returns a text up to where its first template begins.
func beforeTemplate(src string) string {
	if i := strings.Index(src, "{{"); i >= 0 {
		return src[:i+2]
	}
	return src
}
