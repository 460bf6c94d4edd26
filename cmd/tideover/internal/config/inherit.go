package config

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/lazyregexp"
)

// Inherit is which variables of the server's environment a command gets, in addition to those that every
// command gets ([BaseVariables]): names, which may end in * for all that begin so. "*" stands for all of them.
type Inherit []string

// InheritAll is `env-inherit: all`.
var InheritAll = Inherit{"*"}

// BaseVariables are the variables of the server's environment that every command gets, unless they are
// settings of the server itself.
var BaseVariables = Inherit{"PATH", "HOME", "USER", "LANG", "LC_*", "TZ", "TMPDIR", "TIDEOVER_*"}

// Has reports whether the variable is among them.
func (i Inherit) Has(name string) bool {
	return slices.ContainsFunc(i, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return name == pattern || open && strings.HasPrefix(name, prefix)
	})
}

// plus returns what either has, each once.
func (i Inherit) plus(more Inherit) Inherit {
	all := slices.Clone(i)
	for _, name := range more {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// MarshalJSON writes the list, which is never null: steps of earlier releases have none.
func (i Inherit) MarshalJSON() ([]byte, error) {
	if i == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]string(i))
}

const inheritPattern = `^[A-Za-z_][A-Za-z0-9_]*\*?$`

var inheritName = lazyregexp.New(inheritPattern)

const inheritDoc = "Variables of the server's environment that the command gets: a list of names, such as SSH_AUTH_SOCK or AWS_*, or all. "

func inheritSchema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		strictyaml.WordSchema("all"), {Type: "array", Items: &jsonschema.Schema{Type: "string", Pattern: inheritPattern}, UniqueItems: true},
	}}
}

// inherit reads a list of names, or all. A variable or a flag has names with commas.
func (l *loader) inherit(at strictyaml.Place) (list Inherit) {
	if n := at.Node; n.Kind == strictyaml.KindText && n.Text == "all" {
		at.Record("all")
		return slices.Clone(InheritAll)
	}
	if at.Node.Origin != "" && at.Node.Kind == strictyaml.KindText {
		at.Node = at.Node.SplitText()
	}
	if at.Node.Kind != strictyaml.KindList {
		at.Bad("%v, where all or a list of names is expected, such as [SSH_AUTH_SOCK]", at.Node.Kind)
		return nil
	}
	list = Inherit{}
	ok := at.Each(func(at strictyaml.Place) {
		text, ok := at.Text()
		switch {
		case !ok:
		case !inheritName.MatchString(text):
			at.Bad("%q is not the name of a variable, such as SSH_AUTH_SOCK or AWS_*", text)
		case slices.Contains(list, text):
			at.Bad("%q is given already", text)
		default:
			list = append(list, text)
		}
	})
	if ok {
		at.Record(jsonText([]string(list)))
	}
	return list
}

// command is a command of the file, for warnings.
type command struct {
	at      strictyaml.Place
	args    []usedText
	env     []string // names that the command has by env
	inherit Inherit
}

// addCommand remembers the command of a step.
func (l *loader) addCommand(d *stepDraft) {
	if len(d.run) == 0 {
		return
	}
	c := command{at: d.at, inherit: d.Inherit}
	for _, u := range d.texts {
		if slices.Contains(d.run, u.text) {
			c.args = append(c.args, u)
		}
	}
	for _, e := range d.env {
		c.env = append(c.env, e.Name)
	}
	l.ownCommands = append(l.ownCommands, c)
}

// checkCommands finds what is probably not meant, when everything has been read.
func (l *loader) checkCommands() {
	for _, c := range l.ownCommands {
		l.warnUnseen(c)
		l.warnScript(c)
	}
}

// warnScript warns of a template in what a shell reads as commands.
func (l *loader) warnScript(c command) {
	run := make([]*template.Text, len(c.args))
	for i, u := range c.args {
		run[i] = u.text
	}
	for k := range c.args {
		if !isShell(run[k]) {
			continue
		}
		// Without -c it is the path of a script, and not its text.
		if i := k + shellScript(run[k:]); i > k+1 && scriptFlag.MatchString(run[i-1].Literal()) && !run[i].IsConstant() {
			c.args[i].at.Warn("the shell reads what is rendered into its script as commands: give the template as an argument behind the script, which has it as \"$1\": " +
				"[sh, -c, 'agent \"$1\"', sh, \"{{ .input.task }}\"]")
			return
		}
	}
}

// scriptFlag is the option of a shell that is followed by a script.
var scriptFlag = lazyregexp.New(`^-[a-zA-Z]*c$`)

// warnUnseen warns of variables that the command uses and does not get.
func (l *loader) warnUnseen(c command) {
	if !slices.ContainsFunc(c.args, func(u usedText) bool { return isShell(u.text) }) {
		return // nothing reads $NAME
	}
	got := slices.Concat(BaseVariables, c.inherit, l.cfg.Server.Inherit, shellVariables, Inherit(c.env))
	for _, u := range c.args {
		var names []string
		for _, name := range variablesOf(u.text.Source()) {
			if !got.Has(name) {
				names = append(names, "$"+name)
			}
		}
		if len(names) > 0 {
			u.at.Warn("the command uses %s, which it does not get from the server: name it in env-inherit, or set it in env", strings.Join(names, ", "))
		}
	}
}

// isShell reports whether the argument is a shell.
func isShell(t *template.Text) bool {
	return slices.Contains(shells, t.Literal()[strings.LastIndexByte(t.Literal(), '/')+1:])
}

// shellVariables are set by shells, and by awk in their scripts.
var shellVariables = Inherit{
	"PWD", "OLDPWD", "IFS", "PPID", "OPTARG", "OPTIND", "REPLY", "RANDOM", "SECONDS", "LINENO", "SHLVL", "UID", "EUID", "HOSTNAME", "BASH*", "PIPESTATUS",
	"NF", "NR", "FNR",
}

var (
	templateAction = lazyregexp.New(`(?s)\{\{.*?\}\}`)
	usedVariable   = lazyregexp.New(`\\.|\$(?:\{#?)?([A-Za-z_][A-Za-z0-9_]*)`)
	setVariable    = lazyregexp.New(`(?:^|[^A-Za-z0-9_$])([A-Za-z_][A-Za-z0-9_]*)\+?=|\b(?:for|read|local|declare|export|getopts|readonly)((?:\s+[A-Za-z_-][A-Za-z0-9_-]*)+)`)
)

// variablesOf returns the names of the variables that a script uses and does not set, sorted. It reads no
// grammar: a name in single quotes counts.
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
