package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
)

// checkUntrusted refuses templates by which the sender of a job could choose the program
// of a step, the commands of a shell or the host of a request. It is only for steps that
// jobs reach: anyone can send a job, but only users of the API start other runs. via is
// appended to messages and says how a job reaches the step; "" for the job's own step.
func checkUntrusted(d *stepDraft, via string) {
	if d.IsHTTP() {
		checkHost(d, via)
		return
	}
	run := d.at.Child("run", d.at.Node.Get("run"))
	if len(d.Texts.Run) == 0 || len(d.Texts.Run) != len(run.Node.Items) {
		return // it has a problem already
	}
	stdin := d.at.Child("stdin", d.at.Node.Get("stdin"))
	checkTemplates(run, stdin, d.Texts.Run, d.Texts.Stdin != nil && d.Texts.Stdin.Foreign(), via)
	checkEnv(d, via)
}

// checkMessageCommand is checkUntrusted for the command of a notifier, which reads the
// message on its standard input.
func checkMessageCommand(c command) {
	checkTemplates(c.at, c.at, c.texts(), true, " (with nip90 in the file, a message may contain text of a job)")
}

// checkTemplates refuses the templates in a command that [commandLine] finds unsafe. run
// and stdin are the places for messages. foreignStdin is whether the sender of a job may
// have written the command's standard input.
func checkTemplates(run, stdin place, texts []*template.Text, foreignStdin bool, via string) {
	c := commandLine{run: texts, foreignStdin: foreignStdin, bad: map[int]string{}}
	c.check()
	for _, i := range slices.Sorted(maps.Keys(c.bad)) {
		at := stdin
		if i != stdinIndex {
			at = run.Index(i)
		}
		at.Bad("%s%s", c.bad[i], via)
	}
}

// programVariables are environment variables that determine which programs another
// program runs. A name that ends in * stands for all names with that prefix.
var programVariables = guard.Inherit{
	"BASH_ENV", "BASH_FUNC_*", "DYLD_*", "EDITOR", "ENV", "GIT_*", "IFS", "JAVA_TOOL_OPTIONS", "LD_*", "LESSOPEN", "LUA_INIT", "NODE_OPTIONS", "PAGER",
	"PATH", "PERL5*", "PROMPT_COMMAND", "PS4", "PYTHON*", "RUBY*", "SHELL", "SHELLOPTS", "VISUAL", "ZDOTDIR",
}

// checkEnv refuses a template in a variable that determines which programs run.
func checkEnv(d *stepDraft, via string) {
	for _, e := range d.Texts.Env {
		if !e.Text.Foreign() || !programVariables.Has(e.Name) {
			continue
		}
		at := d.at // if the workflow sets the variable, the step has no place for it
		if env := at.Node.Get("env"); env != nil && env.Get(e.Name) != nil {
			at = at.Child("env", env).Child(e.Name, env.Get(e.Name))
		}
		at.Bad("a template can't be the value of %s, which decides what programs run: the sender of a job could choose the program%s", e.Name, via)
	}
}

// checkHost refuses a template in the part of a URL before the path.
func checkHost(d *stepDraft, via string) {
	if d.Texts.URL == nil || d.Provider != "" || !d.Texts.URL.Foreign() || !d.Texts.URL.ChoosesHost() {
		return // no URL, no template in it, or the host comes from the provider or from the file
	}
	method, http := strings.ToLower(d.Method), d.at.Child("http", d.at.Node.Get("http"))
	http.Child(method, http.Node.Get(method)).Bad("a template can't be part of the host: the sender of a job could choose the host%s", via)
}
