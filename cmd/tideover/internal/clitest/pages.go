//go:build unix

package clitest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testfile"
)

// Pages returns the names of all pages of the documentation. They are arguments of
// [ReadPage].
func Pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(testfile.Repository(t, "docs", "*.md"))
	if err != nil || len(found) < 20 {
		t.Fatalf("there are the pages %v: %v", found, err)
	}
	names := []string{"../README.md"}
	for _, path := range found {
		names = append(names, filepath.Base(path))
	}
	return names
}

// TypedLine is a command on a page, with the output that the page shows below it.
type TypedLine struct {
	Text  string
	Shown []string
}

// TypedIn returns the command lines that run tideover, in the console and shell blocks of a page
// and in blocks that are indented by four spaces.
func TypedIn(text string) (list []TypedLine) {
	for _, b := range FencedIn(text) {
		switch b.Language {
		case "console":
			list = append(list, consoleLines(b.Text)...)
		case "sh":
			for line := range strings.Lines(strings.ReplaceAll(b.Text, "\\\n", " ")) {
				list = append(list, TypedLine{Text: strings.TrimSpace(ShellComment.ReplaceAllString(line, ""))})
			}
		}
	}
	for line := range strings.Lines(fence.ReplaceAllString(text, "")) {
		if rest, ok := strings.CutPrefix(line, "    tideover "); ok {
			list = append(list, TypedLine{Text: "tideover " + strings.TrimSpace(ShellComment.ReplaceAllString(rest, ""))})
		}
	}
	return slices.DeleteFunc(list, func(l TypedLine) bool { return len(Invocations(l.Text)) == 0 })
}

func consoleLines(text string) (list []TypedLine) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			list = append(list, TypedLine{Text: strings.TrimSpace(ShellComment.ReplaceAllString(command, ""))})
		} else if n := len(list); n > 0 && strings.TrimSpace(line) != "" {
			list[n-1].Shown = append(list[n-1].Shown, line)
		}
	}
	return list
}

var quotedPart = regexp.MustCompile(`'[^']*'|"[^"]*"`)

var separator = regexp.MustCompile(`\|\||&&| \d>|[|;&<>()]`)

// Invocations returns the parts of a shell line that run tideover.
func Invocations(line string) (list []string) {
	hidden := quotedPart.ReplaceAllStringFunc(line, func(q string) string { return strings.Repeat("q", len(q)) })
	begin := 0
	for _, at := range append(separator.FindAllStringIndex(hidden, -1), []int{len(line), len(line)}) {
		part := Variables.ReplaceAllString(strings.TrimSpace(line[begin:at[0]]), "")
		if strings.HasPrefix(part, "tideover ") {
			list = append(list, part)
		}
		begin = at[1]
	}
	return list
}

var reference = regexp.MustCompile(`\$\{(env|file):([^}]+)\}`)

// Configured writes a configuration of a page to a file and returns its path. It also creates all
// files and variables that the configuration refers to.
func (k *Recipe) Configured(text string) (file string) {
	k.T.Helper()
	file = k.Path("tideover.yaml")
	k.Write(file, text, 0o600)
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		if m[1] == "env" {
			k.Env = append(k.Env, m[2]+"=value-of-"+m[2])
		} else {
			k.Write(k.Path(m[2]), "value of "+m[2], 0o600)
		}
	}
	return file
}

// Blocks returns the code blocks of a page that are marked with this language.
func Blocks(t *testing.T, name, language string) (list []string) {
	t.Helper()
	for _, b := range FencedIn(ReadPage(t, name)) {
		if b.Language == language {
			list = append(list, b.Text)
		}
	}
	if len(list) == 0 {
		t.Fatalf("docs/%s has nothing in %s", name, language)
	}
	return list
}

// fenced is a code block of a page.
type fenced struct{ Language, Text string }

// ReadPage returns the text of a page of the documentation.
func ReadPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(testfile.Repository(t, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// FencedIn returns the code blocks of a text.
func FencedIn(text string) (list []fenced) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		list = append(list, fenced{m[1], m[2]})
	}
	return list
}

// Recipe runs the commands of a section of a page, unchanged. It has its own home and working
// folder, and a folder with programs that is first in $PATH.
type Recipe struct {
	T              *testing.T
	Home, Dir, bin string
	Env            []string
	Blocks         []fenced
}

// EmptyRecipe returns a recipe without text.
func EmptyRecipe(t *testing.T) *Recipe {
	t.Helper()
	home := ShortDir(t) // paths of sockets must be short
	k := &Recipe{T: t, Home: home, Dir: filepath.Join(home, "work"), bin: filepath.Join(home, ".local", "bin")}
	for _, dir := range []string{k.Dir, k.bin} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	k.Fake("tideover", `exec "`+CommandPath(t)+`" "$@"`)
	k.Env = []string{
		"HOME=" + home, "PATH=" + k.bin + ":" + os.Getenv("PATH"), "TZ=UTC", "USER=tester", "TMPDIR=" + os.TempDir(), "NO_PROXY=127.0.0.1",
	}
	return k
}

// Path returns the path of a file of a recipe: below the home folder if name begins with ~/, else
// below the working folder.
func (k *Recipe) Path(name string) string {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		return filepath.Join(k.Home, rest)
	}
	return filepath.Join(k.Dir, name)
}

// Write writes a file, and creates its folder.
func (k *Recipe) Write(path, text string, mode os.FileMode) {
	k.T.Helper()
	// A process that is forked now would inherit the file, and executing an open file fails
	// (ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		k.T.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		k.T.Fatal(err)
	}
}

// Fake creates a program that records its arguments and then runs the script. In the script, $n is
// the number of the call.
func (k *Recipe) Fake(name, script string) {
	k.T.Helper()
	note := ""
	if name != "tideover" {
		log := filepath.Join(k.Home, name+".calls")
		note = `echo "$*" >> "` + log + `"; n=$(($(wc -l < "` + log + `"))); `
	}
	k.Write(filepath.Join(k.bin, name), "#!/bin/sh\n"+note+script+"\n", 0o700)
}

// Shell returns a command that runs the n-th shell block of the recipe.
func (k *Recipe) Shell(n int) *exec.Cmd {
	k.T.Helper()
	for _, b := range k.Blocks {
		if b.Language != "sh" {
			continue
		}
		if n--; n < 0 {
			return k.Command("sh", "-e", "-c", b.Text)
		}
	}
	k.T.Fatal("the recipe has no such block")
	return nil
}

// Command returns a command in the recipe's environment, which ends with the test.
func (k *Recipe) Command(name string, args ...string) *exec.Cmd {
	k.T.Helper()
	ctx, cancel := context.WithTimeout(k.T.Context(), 2*time.Minute)
	k.T.Cleanup(cancel)
	if name == "tideover" {
		name = filepath.Join(k.bin, name)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = k.Dir, k.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// Run runs the n-th shell block to its end.
func (k *Recipe) Run(n int) Outcome {
	k.T.Helper()
	return Finish(k.T, k.Shell(n))
}

// NeedTools skips the test if a tool is missing.
func NeedTools(t *testing.T, tools ...string) {
	t.Helper()
	for _, name := range tools {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("the recipe was not tried: there is no %s here", name)
		}
	}
}

// ShellComment matches a comment at the end of a line.
var ShellComment = regexp.MustCompile(`\s+#.*$`)

// Variables matches assignments before a command.
var Variables = regexp.MustCompile(`^(\w+=\S*\s+)+`) // assignments before a command
