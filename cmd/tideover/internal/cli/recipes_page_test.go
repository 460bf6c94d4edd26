//go:build unix

package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const docs = "../../../../docs/"

// fenced is a code block of a page.
type fenced struct{ language, text string }

// page returns the text of a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(docs + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// fencedIn returns the code blocks of a text.
func fencedIn(text string) (list []fenced) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		list = append(list, fenced{m[1], m[2]})
	}
	return list
}

// recipe runs the commands of a section of a page, unchanged. It has its own home and working
// folder, and a folder with programs that is first in $PATH.
type recipe struct {
	t              *testing.T
	home, dir, bin string
	env            []string
	recipe         []fenced
}

// newRecipe returns the section of docs/recipes.md with this heading. It writes the files in the
// section to the paths in their first lines.
func newRecipe(t *testing.T, heading string) *recipe {
	t.Helper()
	_, section, found := strings.Cut(page(t, "recipes.md"), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/recipes.md has no recipe %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	k := emptyRecipe(t)
	k.recipe = fencedIn(section)
	for _, b := range k.recipe {
		if b.language != "sh" {
			first, _, _ := strings.Cut(b.text, "\n")
			name, ok := strings.CutPrefix(first, "# ")
			if !ok {
				t.Fatalf("the first line %q names no file", first)
			}
			k.write(k.path(name), b.text, 0o600)
		}
	}
	return k
}

// emptyRecipe returns a recipe without text.
func emptyRecipe(t *testing.T) *recipe {
	t.Helper()
	home := shortDir(t) // paths of sockets must be short
	k := &recipe{t: t, home: home, dir: filepath.Join(home, "work"), bin: filepath.Join(home, ".local", "bin")}
	for _, dir := range []string{k.dir, k.bin} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	k.fake("tideover", `exec "`+commandPath(t)+`" "$@"`)
	k.env = []string{
		"HOME=" + home, "PATH=" + k.bin + ":" + os.Getenv("PATH"), "TZ=UTC", "USER=tester", "TMPDIR=" + os.TempDir(), "NO_PROXY=127.0.0.1",
	}
	return k
}

// path returns the path of a file of a recipe: below the home folder if name begins with ~/, else
// below the working folder.
func (k *recipe) path(name string) string {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		return filepath.Join(k.home, rest)
	}
	return filepath.Join(k.dir, name)
}

func (k *recipe) write(path, text string, mode os.FileMode) {
	k.t.Helper()
	// A process that is forked now would inherit the file, and executing an open file fails
	// (ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		k.t.Fatal(err)
	}
}

// fake creates a program that records its arguments and then runs the script. In the script, $n is
// the number of the call.
func (k *recipe) fake(name, script string) {
	k.t.Helper()
	note := ""
	if name != "tideover" {
		log := filepath.Join(k.home, name+".calls")
		note = `echo "$*" >> "` + log + `"; n=$(($(wc -l < "` + log + `"))); `
	}
	k.write(filepath.Join(k.bin, name), "#!/bin/sh\n"+note+script+"\n", 0o700)
}

// calls returns the arguments of each call of a program that fake has created.
func (k *recipe) calls(name string) []string {
	text, _ := os.ReadFile(filepath.Join(k.home, name+".calls"))
	return strings.FieldsFunc(string(text), func(c rune) bool { return c == '\n' })
}

// wantCalls checks the arguments of all calls of a program that fake has created.
func (k *recipe) wantCalls(name string, want ...string) {
	k.t.Helper()
	if got := strings.Join(k.calls(name), "\n"); got != strings.Join(want, "\n") {
		k.t.Errorf("%s was called with\n%s\nwant\n%s", name, got, strings.Join(want, "\n"))
	}
}

// shell returns a command that runs the n-th shell block of the recipe.
func (k *recipe) shell(n int) *exec.Cmd {
	k.t.Helper()
	for _, b := range k.recipe {
		if b.language != "sh" {
			continue
		}
		if n--; n < 0 {
			return k.command("sh", "-e", "-c", b.text)
		}
	}
	k.t.Fatal("the recipe has no such block")
	return nil
}

// command returns a command in the recipe's environment, which ends with the test.
func (k *recipe) command(name string, args ...string) *exec.Cmd {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 2*time.Minute)
	k.t.Cleanup(cancel)
	if name == "tideover" {
		name = filepath.Join(k.bin, name)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = k.dir, k.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// run runs the n-th shell block to its end.
func (k *recipe) run(n int) outcome {
	k.t.Helper()
	return finish(k.t, k.shell(n))
}

// needs skips the test if a tool is missing.
func needs(t *testing.T, tools ...string) {
	t.Helper()
	for _, name := range tools {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("the recipe was not tried: there is no %s here", name)
		}
	}
}
