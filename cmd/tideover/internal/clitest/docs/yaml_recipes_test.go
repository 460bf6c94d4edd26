//go:build unix

package docs_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// yamlRecipe is a recipe of docs/yaml-recipes.md with a real server.
type yamlRecipe struct {
	*clitest.Recipe
	*clitest.Server
	text string // the file of the recipe
}

// newYAMLRecipe starts a server with the file of the section with this heading. scripts are the
// commands of the file: each begins by writing its name and arguments to the file begun. Then it
// runs the script, and writes them to the file log if that succeeds.
func newYAMLRecipe(t *testing.T, heading string, scripts map[string]string) *yamlRecipe {
	t.Helper()
	_, section, found := strings.Cut(clitest.ReadPage(t, "yaml-recipes.md"), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/yaml-recipes.md has no recipe %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	k := &yamlRecipe{Recipe: clitest.EmptyRecipe(t)}
	k.Recipe.Blocks = clitest.FencedIn(section)
	k.text = k.Recipe.Blocks[0].Text
	for name, script := range scripts {
		k.Write(k.Path(name), "#!/bin/sh\nset -e\necho \""+strings.TrimSuffix(name, ".sh")+" $*\" >> begun\n"+script+"\necho \""+strings.TrimSuffix(name, ".sh")+" $*\" >> log\n", 0o700)
	}
	k.Server = clitest.Serve(t, k.text, k.Recipe.Dir)
	k.Recipe.Env = append(k.Recipe.Env, "TIDEOVER_SERVER=unix:"+filepath.Join(k.Data, "tideover.sock"))
	return k
}

// kill kills the server, and starts another one.
func (k *yamlRecipe) kill() {
	k.Server.T.Helper()
	k.Signal(syscall.SIGKILL)
	k.End()
	k.Server = clitest.Serve(k.Server.T, k.text, k.Recipe.Dir)
}

// sh runs the n-th shell block of the recipe, which must succeed, and returns what it prints.
func (k *yamlRecipe) sh(n int) string {
	k.Server.T.Helper()
	got := k.Recipe.Run(n)
	clitest.WantCode(k.Server.T, got, 0)
	return got.Out
}

// until waits until the run is in this state. If marks are given, the file begun must have them.
func (k *yamlRecipe) until(run, state string, marks ...string) *engine.Info {
	t := k.Server.T
	t.Helper()
	var i *engine.Info
	testwait.Until(t, run+" is "+state+" "+strings.Join(marks, ", "), func() bool {
		i = k.Show(run)
		begun := k.lines("begun")
		return i.State == state && !slices.ContainsFunc(marks, func(m string) bool { return !slices.Contains(begun, m) })
	})
	return i
}

// lines returns the distinct lines of a file, sorted.
func (k *yamlRecipe) lines(name string) []string {
	text, _ := os.ReadFile(k.Path(name))
	list := strings.FieldsFunc(string(text), func(c rune) bool { return c == '\n' })
	slices.Sort(list)
	return slices.Compact(list)
}

func (k *yamlRecipe) wantLog(want ...string) {
	t := k.Server.T
	t.Helper()
	if got := k.lines("log"); !slices.Equal(got, want) {
		t.Errorf("these commands succeeded: %q, want %q\n%s", got, want, k.Log)
	}
}

// allow creates the file that a script waits for.
func (k *yamlRecipe) allow(name string) { k.Write(k.Path(name), "", 0o600) }

// blocked is a script that waits until a file exists.
func blocked(file string) string { return "until test -e " + file + "; do sleep 0.05; done" }

func TestRecipeDeploy(t *testing.T) {
	t.Parallel()
	k := newYAMLRecipe(t, "Ask me before the deploy, roll back if it fails", map[string]string{
		"build.sh": "", "deploy.sh": blocked("go-deploy"), "check.sh": "exit 1", "roll-back.sh": blocked("go-back"),
	})
	k.sh(0)
	k.until("release-7", "waiting")
	k.kill()
	testwait.Until(t, "the run asks", func() bool { return k.Show("release-7").Asking })
	clitest.WantIn(t, "runs --asking and approve", k.sh(1), "ask: approve")
	k.until("release-7", "running", "deploy web-1 7", "deploy web-2 7")
	k.kill()
	k.allow("go-deploy")
	k.until("release-7", "undoing", "roll-back web-1", "roll-back web-2")
	k.kill()
	k.allow("go-back")
	i := k.until("release-7", "dead")
	clitest.WantIn(t, "error", i.Error, `step "check": exit code 1`)
	k.wantLog("build 7", "deploy web-1 7", "deploy web-2 7", "roll-back web-1", "roll-back web-2")
	for _, part := range []string{"approve by cli:", "after the backup", "deploy  run for-each  2 items: 2 succeeded", "undo  succeeded"} {
		clitest.WantIn(t, "show", k.RunCommand("show", "release-7").Out, part)
	}
}

func TestRecipeDeployIsRejected(t *testing.T) {
	t.Parallel()
	k := newYAMLRecipe(t, "Ask me before the deploy, roll back if it fails", map[string]string{"build.sh": ""})
	k.sh(0)
	testwait.Until(t, "the run asks", func() bool { return k.Show("release-7").Asking })
	clitest.WantCode(t, k.RunCommand("reject", "release-7", "--comment", "not on Friday"), 0)
	i := k.until("release-7", "dead")
	clitest.WantIn(t, "error", i.Error, "rejected by cli:")
	clitest.WantIn(t, "error", i.Error, "not on Friday")
	k.wantLog("build 7")
}

func TestRecipeSkip(t *testing.T) {
	t.Parallel()
	k := newYAMLRecipe(t, "Skip a step", map[string]string{"migrate.sh": "", "restart.sh": ""})
	k.sh(0)
	k.until("no", "succeeded")
	k.until("yes", "succeeded")
	k.wantLog("migrate ", "restart as it was", "restart migrated")
}

func TestRecipeForEach(t *testing.T) {
	t.Parallel()
	k := newYAMLRecipe(t, "Once for each item", map[string]string{
		"list.sh": `echo '[{"file": "a.png"}, {"file": "b.png"}, {"file": "c.png"}]'`, "resize.sh": blocked("go") + `; printf "$1 "`, "report.sh": "",
	})
	k.sh(0)
	k.until("today", "running", "resize a.png 0", "resize b.png 1", "resize c.png 2")
	k.kill()
	k.allow("go")
	k.until("today", "succeeded")
	k.wantLog("list ", "report a.png b.png c.png ", "resize a.png 0", "resize b.png 1", "resize c.png 2")
}

func TestRecipeSleep(t *testing.T) {
	t.Parallel()
	k := newYAMLRecipe(t, "Wait for some days", map[string]string{"mail.sh": ""})
	k.sh(0)
	k.until("ada", "waiting")
	k.kill()
	k.until("ada", "succeeded")
	k.wantLog("mail goodbye ada", "mail welcome ada")
}

func TestRecipeSignal(t *testing.T) {
	t.Parallel()
	k := newYAMLRecipe(t, "Wait for another system", map[string]string{"ship.sh": "", "remind.sh": ""})
	k.sh(0)
	k.until("order-4711", "waiting")
	k.kill()
	k.until("order-4711", "waiting")
	k.sh(1)
	k.until("order-4711", "succeeded")
	k.wantLog("ship 5")
}

func TestRecipeChoice(t *testing.T) {
	t.Parallel()
	k := newYAMLRecipe(t, "Let a person choose", map[string]string{"restart.sh": "", "fail-over.sh": ""})
	k.sh(0)
	testwait.Until(t, "the run asks", func() bool { return k.Show("db").Asking })
	k.kill()
	testwait.Until(t, "the run asks", func() bool { return k.Show("db").Asking })
	k.sh(1)
	k.until("db", "succeeded")
	if log := k.lines("log"); len(log) != 1 || !strings.HasPrefix(log[0], "fail-over cli:") {
		t.Errorf("%q", log)
	}
}

func TestRecipeChildren(t *testing.T) {
	t.Parallel()
	k := newYAMLRecipe(t, "Start other workflows", map[string]string{"count.sh": blocked("go") + `; printf "$1 has 5. "`, "sum.sh": ""})
	k.sh(0)
	k.until("monday", "waiting", "count berlin monday", "count rome monday")
	k.kill()
	k.allow("go")
	k.until("monday", "succeeded")
	k.wantLog("count berlin monday", "count rome monday", "sum berlin has 5. rome has 5. ")
}

func TestRecipeUndo(t *testing.T) {
	t.Parallel()
	k := newYAMLRecipe(t, "Undo", map[string]string{
		"book.sh": `test "$1" = hotel; echo "room 7 in $2"`, "cancel.sh": blocked("go"),
	})
	k.sh(0)
	k.until("rome", "undoing", "cancel hotel room 7 in rome")
	k.kill()
	k.allow("go")
	k.until("rome", "dead")
	k.wantLog("book hotel rome", "cancel hotel room 7 in rome")
}
