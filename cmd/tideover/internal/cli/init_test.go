//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/starter"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// inFolder runs tideover in a folder.
func inFolder(t *testing.T, dir string, args ...string) clitest.Outcome {
	t.Helper()
	cmd, _ := clitest.Command(t, args...)
	cmd.Dir = dir
	return clitest.Finish(t, cmd)
}

func TestInitWritesAFileToStartFrom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := inFolder(t, dir, "init", "workflow")
	clitest.WantCode(t, o, 0)
	clitest.WantIn(t, "what is next", o.Out, "\n  tideover serve\n  tideover run hello --wait   # in another terminal\n")
	info, err := os.Stat(filepath.Join(dir, "tideover.yaml"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file: %v, %v; want it for its owner alone", info, err)
	}
	clitest.WantCode(t, inFolder(t, dir, "config", "check"), 0)

	// No case replaces an existing file.
	file := filepath.Join(dir, "tideover.yaml")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o = inFolder(t, dir, "init", "gateway")
	clitest.WantCode(t, o, CodeOwn)
	clitest.WantIn(t, "the error", o.Stderr, "tideover.yaml exists already: use --force")
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("the file was written over, or %v", err)
	}
}

func TestInitWithForceReplacesWhatALinkLeadsTo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "real.yaml"), filepath.Join(dir, "a link.yaml")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil { //nolint:gosec // other users can read the file, and must not after init --force
		t.Fatal(err)
	}
	if err := os.Symlink("real.yaml", link); err != nil {
		t.Fatal(err)
	}
	o := inFolder(t, dir, "init", "session", "--out", "a link.yaml", "--force")
	clitest.WantCode(t, o, 0)
	clitest.WantIn(t, "what is next", o.Out, "\n  tideover serve --config 'a link.yaml'\n")
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link: %v, %v; want it to be one still", info, err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v; want it for its owner alone", info, err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, ".*")); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
}

func TestInitRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no case without a terminal, and lists them", nil, "  workflow  commands and HTTP requests"},
		{"a case that there is not, and lists them", []string{"wrokflow"}, "  cluster   several servers"},
		{"two cases", []string{"workflow", "gateway"}, `"gateway" is a second`},
		{"a file and no file", []string{"all", "--stdout", "--out", "x.yaml"}, "--stdout writes no file"},
		{"to force nothing", []string{"all", "--stdout", "--force"}, "--stdout writes no file"},
		{"a file without a name", []string{"all", "--out", ""}, "--out: the value is empty"},
		{"a folder that there is not", []string{"all", "--out", "none/x.yaml"}, "no such file or directory"},
		{"to replace a folder", []string{"all", "--out", ".", "--force"}, ". is not a regular file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			o := inFolder(t, dir, append([]string{"init"}, tt.args...)...)
			clitest.WantCode(t, o, CodeOwn)
			clitest.WantIn(t, "the error", o.Stderr, tt.want)
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("written: %v, %v", left, err)
			}
		})
	}
}

func TestInitPrintsInstead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := inFolder(t, dir, "init", "all", "--stdout")
	c, _ := starter.Find("all")
	if want, err := c.File(); err != nil || o.Code != 0 || o.Out != string(want) {
		t.Errorf("init all --stdout: %+v, want the file; %v", o, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("written: %v, %v", left, err)
	}
}

func TestTheCommandsAfterInitLeadToAProvider(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "jobs.yaml")
	o := clitest.Run(t, "init", "nip90", "-o", file)
	clitest.WantCode(t, o, 0)
	_, rest, _ := strings.Cut(o.Out, "\n  tideover ")
	keygen, _, _ := strings.Cut(rest, "\n")
	clitest.WantCode(t, clitest.Run(t, "config", "check", file), CodeFailed)
	clitest.WantCode(t, clitest.Run(t, strings.Fields(keygen)...), 0)
	clitest.WantCode(t, clitest.Run(t, "config", "check", file), 0)
}

func TestInitAsksOnATerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, mark := clitest.Command(t, "init")
	cmd.Dir = dir
	s := clitest.StartOnTerminal(t, cmd, mark)
	for i, answer := range []string{"9", "", "gateway"} {
		testwait.Until(t, "it asks", func() bool { return strings.Count(s.Screen(), "Number (1 to 6)") == i+1 })
		if _, err := s.Tty.WriteString(answer + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	testwait.Until(t, "the file is reported", func() bool { return strings.Contains(s.Screen(), "tideover providers") })
	clitest.WantIn(t, "the list", s.Screen(), "2  gateway   a reliability proxy")
	text, err := os.ReadFile(filepath.Join(dir, "tideover.yaml"))
	if err != nil || !strings.Contains(string(text), "\nproviders:\n") {
		t.Errorf("the file: %v, %q", err, text)
	}
}

func TestAnswersAreNumbersOrNames(t *testing.T) {
	t.Parallel()
	all := starter.Cases()
	for answer, want := range map[string]string{"1": "workflow", " 6 ": "all", "Cluster": "cluster", "0": "", "7": "", "": "", "-1": "", "x": ""} {
		if c, ok := parseChoice(all, answer); ok != (want != "") || c.Name != want {
			t.Errorf("chosen(%q) = %q, %v; want %q", answer, c.Name, ok, want)
		}
	}
}

func TestInitCompletesItsCases(t *testing.T) {
	t.Parallel()
	o := clitest.Run(t, "__complete", "init", "")
	for _, c := range starter.Cases() {
		clitest.WantIn(t, "completions", o.Out, c.Name+"\t"+c.About+"\n")
	}
	if o := clitest.Run(t, "__complete", "init", "all", ""); strings.Contains(o.Out, "workflow") {
		t.Errorf("a second case is offered: %q", o.Out)
	}
}
