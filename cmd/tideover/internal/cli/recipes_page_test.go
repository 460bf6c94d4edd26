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

	"github.com/tideover/tideover/cmd/tideover/internal/commandtest"
)

const docs = "../../../../docs/"

// fenced is a block of a page.
type fenced struct{ language, text string }

// page returns a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(docs + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// fencedIn returns the blocks of a text.
func fencedIn(text string) (list []fenced) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		list = append(list, fenced{m[1], m[2]})
	}
	return list
}

// kitchen is where a recipe is tried: a home, a folder to work in, and commands
// that are found first. The text of the recipe is never edited; what the test
// decides is what a machine decides: the environment and who answers.
type kitchen struct {
	t              *testing.T
	home, dir, bin string
	env            []string
	recipe         []fenced
}

// newKitchen takes the recipe with the heading from docs/recipes.md, and puts its
// files where their first lines say.
func newKitchen(t *testing.T, heading string) *kitchen {
	t.Helper()
	_, section, found := strings.Cut(page(t, "recipes.md"), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/recipes.md has no recipe %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	k := emptyKitchen(t)
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

func emptyKitchen(t *testing.T) *kitchen {
	t.Helper()
	home := shortDir(t) // has sockets in it
	k := &kitchen{t: t, home: home, dir: filepath.Join(home, "work"), bin: filepath.Join(home, ".local", "bin")}
	for _, dir := range []string{k.dir, k.bin} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	k.fake("tideover", `exec "`+commandtest.Path(t)+`" "$@"`)
	k.env = []string{
		"HOME=" + home, "PATH=" + k.bin + ":" + os.Getenv("PATH"), "TZ=UTC", "USER=tester", "TMPDIR=" + os.TempDir(), "NO_PROXY=127.0.0.1",
	}
	return k
}

// path returns where a file of a recipe is.
func (k *kitchen) path(name string) string {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		return filepath.Join(k.home, rest)
	}
	return filepath.Join(k.dir, name)
}

func (k *kitchen) write(path, text string, mode os.FileMode) {
	k.t.Helper()
	// A process that is forked while the file is open could keep it from being run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		k.t.Fatal(err)
	}
}

// fake makes a command that notes how it is called, and then runs the script, in
// which $n is the number of the call.
func (k *kitchen) fake(name, script string) {
	k.t.Helper()
	note := ""
	if name != "tideover" {
		log := filepath.Join(k.home, name+".calls")
		note = `echo "$*" >> "` + log + `"; n=$(($(wc -l < "` + log + `"))); `
	}
	k.write(filepath.Join(k.bin, name), "#!/bin/sh\n"+note+script+"\n", 0o700)
}

// calls returns how a fake was called.
func (k *kitchen) calls(name string) []string {
	text, _ := os.ReadFile(filepath.Join(k.home, name+".calls"))
	return strings.FieldsFunc(string(text), func(c rune) bool { return c == '\n' })
}

// wantCalls wants a fake to have been called with just these arguments.
func (k *kitchen) wantCalls(name string, want ...string) {
	k.t.Helper()
	if got := strings.Join(k.calls(name), "\n"); got != strings.Join(want, "\n") {
		k.t.Errorf("%s was called with\n%s\nwant\n%s", name, got, strings.Join(want, "\n"))
	}
}

// shell returns a command that runs the recipe's n-th block for a shell.
func (k *kitchen) shell(n int) *exec.Cmd {
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

// command returns a command in the kitchen, which ends with the test.
func (k *kitchen) command(name string, args ...string) *exec.Cmd {
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

// run runs the recipe's n-th block for a shell to its end.
func (k *kitchen) run(n int) outcome {
	k.t.Helper()
	return finish(k.t, k.shell(n))
}

// needs skips the recipe if there is no such tool.
func needs(t *testing.T, tools ...string) {
	t.Helper()
	for _, name := range tools {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("the recipe was not tried: there is no %s here", name)
		}
	}
}
