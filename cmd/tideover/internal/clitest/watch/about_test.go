//go:build unix

package watch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// The command that sessions ls prints to continue a session has all flags of its watch: it uses the
// same notifiers and resumes in the same way.
func TestTheCommandThatIsOfferedGoesOnInTheSameWay(t *testing.T) {
	t.Parallel()
	server := newWebhook(t)
	w := newWatchEnv(t, "exit 7", "exit 7", "exit 7", "exit 7", "exit 7", "exit 7")
	flags := append(w.configure(server.URL), "--name", "night", "--on", "unknown=wait", "-q")
	file, err := os.ReadFile(filepath.Join(w.dir, "tideover.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("tideover.yaml", string(file)+"server: {data: "+filepath.Join(w.dir, "state")+"}\n")
	clitest.WantCode(t, clitest.Finish(t, w.command(flags...)), 7)
	show, _ := clitest.Command(t, "sessions", "show", "night")
	show.Env = append(show.Env, "TIDEOVER_SERVER=", "TIDEOVER_CONFIG="+filepath.Join(w.dir, "tideover.yaml"))
	text := clitest.Finish(t, show)
	_, line, _ := strings.Cut(text.Out, "start again")
	line, _, _ = strings.Cut(strings.TrimSpace(line), "\n")
	for _, want := range []string{" --notify hook ", " --on unknown=wait ", " --policy '" + quickly + "' ", " --resume ", " --quiet=true "} {
		clitest.WantIn(t, "the command that is offered", line, want)
	}
	before := len(server.all())
	again := exec.Command("sh", "-c", strings.Replace(line, "tideover watch", `"$TIDEOVER" watch`, 1))
	again.Env = append(os.Environ(), append(show.Env, "TIDEOVER="+show.Path)...)
	if out, err := again.CombinedOutput(); clitest.ExitCode(again) != 7 {
		t.Fatalf("%s\n%v: %s", line, err, out)
	}
	if got := server.all(); len(got) <= before || !strings.Contains(got[len(got)-1], `"event":"gave-up"`) {
		t.Errorf("no message was sent: %q", got)
	}
}

func TestWatchOfACommandThatCannotBeRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	clitest.WriteFile(t, filepath.Join(dir, "text"), "")
	for name, tt := range map[string]struct {
		args []string
		code int
		want string
	}{
		"not there":        {[]string{"nosuchcmd"}, 127, "start nosuchcmd: not found"},
		"not executable":   {[]string{"./text"}, 126, "start ./text: not executable"},
		"a missing script": {[]string{"sh", "-c", "exec ./none"}, 127, "exit code 127"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := t.TempDir()
			cmd, _ := clitest.Command(t, append([]string{"watch", "--data", state, "--policy", "fixed(1ms) attempts=1", "--"}, tt.args...)...)
			cmd.Dir = dir
			got := clitest.Finish(t, cmd)
			clitest.WantCode(t, got, tt.code)
			clitest.WantIn(t, "stderr", got.Stderr, tt.want)
			if left, _ := filepath.Glob(filepath.Join(state, "watch", "*")); tt.args[0] != "sh" && len(left) > 0 {
				t.Errorf("it left %v", left)
			}
		})
	}
}
