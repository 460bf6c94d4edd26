package config

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/hosts"
	"github.com/tideover/tideover/internal/lazyregexp"
)

// ownPrefixes are the prefixes of workflows that tideover defines itself.
var ownPrefixes = []string{session.Prefix, "notify.", nip90.Prefix}

// checkPrefixes refuses workflow names with a prefix that is reserved for the workflows
// of sessions, messages and jobs.
func checkPrefixes(at place) {
	for _, p := range at.Node.Pairs {
		if name := p.Key.Text; slices.ContainsFunc(ownPrefixes, func(s string) bool { return strings.HasPrefix(name, s) }) {
			at.WithNode(p.Key).Bad("%q begins with a prefix that is reserved for sessions, messages and jobs; choose another name", name)
		}
	}
}

// checkReserved refuses names that end in alarmSuffix.
func checkReserved(at place) {
	for _, p := range at.Node.Pairs {
		if strings.HasSuffix(p.Key.Text, alarmSuffix) {
			at.WithNode(p.Key).Bad("%q ends in %s, which is reserved for runs of on-give-up; choose another name", p.Key.Text, alarmSuffix)
		}
	}
}

// crossCheckServer checks the section server against the section engine. found has the
// places of the keys of the section server that are present.
func crossCheckServer(f *fileReader, found map[string]place) {
	checkApart(f.engine.secondPlace, f.cfg.Engine.SecondPlace, f.cfg.Server.Data)
	if durability, ok := found["durability"]; ok && f.cfg.Engine.Clustered() {
		durability.Bad("has no effect with engine.nats; leave it out, and set sync_interval: always in the configuration of the NATS servers")
	}
}

// checkApart refuses a folder for second copies (engine.second-place) that is inside the
// data folder: both copies would be lost together.
func checkApart(at place, copies, data string) {
	if copies == "" || data == "" {
		return
	}
	rel, err := filepath.Rel(data, copies)
	if err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		at.Bad("%q is in server.data, which belongs to one process; use a folder on another disk that all processes share", at.Node.Text)
	}
}

// crossCheckSessions refuses sessions if the engine is a cluster.
func crossCheckSessions(at place, c *Config) {
	if c.Engine.Clustered() && len(at.Node.Pairs) > 0 {
		at.Bad("sessions can't be combined with engine.nats: a session is bound to one machine; use tideover watch, or a tideover serve with a separate file")
	}
}

// command is a command of a step, a job or a notifier.
type command struct {
	at      place
	args    []usedText
	env     []string // names of the variables that the key env sets
	inherit guard.Inherit
}

func (c *command) texts() []*template.Text {
	list := make([]*template.Text, len(c.args))
	for i, u := range c.args {
		list[i] = u.text
	}
	return list
}

// addCommand keeps the command of a step for crossCheckCommands.
func (r *sharedReader) addCommand(d *stepDraft) {
	if len(d.Texts.Run) == 0 {
		return
	}
	c := command{at: d.at, inherit: d.Inherit}
	for _, u := range d.texts {
		if slices.Contains(d.Texts.Run, u.text) {
			c.args = append(c.args, u)
		}
	}
	for _, e := range d.Texts.Env {
		c.env = append(c.env, e.Name)
	}
	r.commands = append(r.commands, c)
}

// crossCheckCommands warns about a template in a shell script and about variables that a
// command uses and does not get. inherit is server.env-inherit.
func crossCheckCommands(commands []command, inherit guard.Inherit) {
	for _, c := range commands {
		c.warnUnseen(inherit)
		c.warnScript()
	}
}

// crossCheckTargets warns about templates in URLs and Host headers that may choose the host of a
// request, if no host is allowed.
func crossCheckTargets(targets []place, allowed hosts.Set) {
	if len(allowed) > 0 {
		return
	}
	for _, at := range targets {
		at.Warn("the template may choose the host of the request: a run fails if it leads to another scheme, host or port than the file: " +
			"write the host and a / before the template, or add the hosts that it may choose to server.allow-hosts")
	}
}

// warnScript warns about a template in the script of a shell.
func (c *command) warnScript() {
	run := c.texts()
	for k := range c.args {
		if !isShell(run[k]) {
			continue
		}
		// Without -c the argument is the path of a script, where a template is harmless.
		if i := k + shellScript(run[k:]); i > k+1 && scriptFlag.MatchString(run[i-1].Literal()) && !run[i].IsConstant() {
			c.args[i].at.Warn("the shell runs the rendered template as part of its script: pass the template as an argument after the script, which reads it as \"$1\": " +
				"[sh, -c, 'agent \"$1\"', sh, \"{{ .input.task }}\"]")
			return
		}
	}
}

// scriptFlag matches the option -c of a shell, alone or combined; a script follows it.
var scriptFlag = lazyregexp.New(`^-[a-zA-Z]*c$`)

// warnUnseen warns about variables that the command uses and does not get. server is
// server.env-inherit.
func (c *command) warnUnseen(server guard.Inherit) {
	if !slices.ContainsFunc(c.args, func(u usedText) bool { return isShell(u.text) }) {
		return // without a shell, $NAME is plain text
	}
	got := slices.Concat(guard.BaseVariables, c.inherit, server, shellVariables, guard.Inherit(c.env))
	for _, u := range c.args {
		var names []string
		for _, name := range variablesOf(u.text.Source()) {
			if !got.Has(name) {
				names = append(names, "$"+name)
			}
		}
		if len(names) > 0 {
			u.at.Warn("the command uses %s, which is not passed to it: add it to env-inherit, or set it in env", strings.Join(names, ", "))
		}
	}
}

// isShell reports whether the argument is a shell.
func isShell(t *template.Text) bool {
	return slices.Contains(shells, t.Literal()[strings.LastIndexByte(t.Literal(), '/')+1:])
}

// shellVariables are variables that shells set, and variables of awk scripts.
var shellVariables = guard.Inherit{
	"PWD", "OLDPWD", "IFS", "PPID", "OPTARG", "OPTIND", "REPLY", "RANDOM", "SECONDS", "LINENO", "SHLVL", "UID", "EUID", "HOSTNAME", "BASH*", "PIPESTATUS",
	"NF", "NR", "FNR",
}

var (
	templateAction = lazyregexp.New(`(?s)\{\{.*?\}\}`)
	usedVariable   = lazyregexp.New(`\\.|\$(?:\{#?)?([A-Za-z_][A-Za-z0-9_]*)`)
	setVariable    = lazyregexp.New(`(?:^|[^A-Za-z0-9_$])([A-Za-z_][A-Za-z0-9_]*)\+?=|\b(?:for|read|local|declare|export|getopts|readonly)((?:\s+[A-Za-z_-][A-Za-z0-9_-]*)+)`)
)

// variablesOf returns the sorted names of the variables that a script uses and does not set. It
// searches for $NAME and does not parse the script: a $NAME in single quotes counts, too.
func variablesOf(script string) (names []string) {
	script = templateAction.ReplaceAllString(script, " ")
	set := map[string]bool{}
	for _, m := range setVariable.FindAllStringSubmatch(script, -1) {
		for name := range strings.FieldsSeq(cmp.Or(m[1], m[2])) {
			set[name] = true
		}
	}
	for _, m := range usedVariable.FindAllStringSubmatch(script, -1) {
		if m[1] != "" && !set[m[1]] {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
