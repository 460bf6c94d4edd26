//go:build unix

package serve_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// The server does not start if other users can write to the data folder, the token or the
// configuration: they could control the server.
func TestFilesThatOthersMayWriteAreRefused(t *testing.T) {
	t.Parallel()
	const stranger = 54321
	for _, c := range []struct {
		name  string
		plant func(t *testing.T, dir, data, file string) error
		want  string
	}{
		{"a folder of mode 0777", func(_ *testing.T, _, data, _ string) error { return os.Chmod(data, 0o777) }, "server.data: other users can write to "},
		{"a folder of mode 0770", func(_ *testing.T, _, data, _ string) error { return os.Chmod(data, 0o770) }, "server.data: other users can write to "},
		{"a token of mode 0622", func(_ *testing.T, _, data, _ string) error { return os.Chmod(filepath.Join(data, "token"), 0o622) }, "token: other users can write to "},
		{"a file of mode 0666", func(_ *testing.T, _, _, file string) error { return os.Chmod(file, 0o666) }, "config: other users can write to "},
		{"a folder of another user", func(t *testing.T, _, data, _ string) error { return chown(t, data, stranger) }, "server.data: "},
		{"a token of another user", func(t *testing.T, _, data, _ string) error { return chown(t, filepath.Join(data, "token"), stranger) }, "token: "},
		{"a file of another user", func(t *testing.T, _, _, file string) error { return chown(t, file, stranger) }, "config: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := clitest.ShortDir(t)
			data, file := filepath.Join(dir, "data"), filepath.Join(dir, "tideover.yaml")
			if err := os.Mkdir(data, 0o700); err != nil {
				t.Fatal(err)
			}
			clitest.WriteFile(t, filepath.Join(data, "token"), "planted-token-of-a-stranger\n")
			clitest.WriteFile(t, file, "version: 1\nworkflows: {w: {steps: [{id: a, run: [echo, done]}]}}\n")
			if err := c.plant(t, dir, data, file); err != nil {
				t.Fatal(err)
			}
			s := &clitest.Server{Background: &clitest.Background{T: t, Folder: dir}, Log: new(clitest.SyncBuffer)}
			s.Cmd, s.Mark = clitest.Command(t, "serve", "--config", file, "--data", data, "--listen", "127.0.0.1:0")
			s.Stdout, s.Stderr = s.Log, s.Log
			s.Begin()
			ended := make(chan int, 1)
			go func() { ended <- s.End().Code }()
			var code int
			over, served := false, false
			testwait.Until(t, "the server ends, or serves", func() bool {
				select {
				case code = <-ended:
					over = true
				default:
					served = strings.Contains(s.Log.String(), "the page is at")
				}
				return over || served
			})
			if served {
				_ = s.Process.Kill()
				<-ended
				t.Fatal("it is served")
			}
			if code == 0 || !strings.Contains(s.Log.String(), c.want) {
				t.Errorf("exit code %d, want an error that has %q: %s", code, c.want, s.Log)
			}
			if _, err := os.Stat(filepath.Join(data, "tideover.sock")); err == nil {
				t.Error("there is a socket")
			}
		})
	}
}

// chown gives the file to another user, which only root can.
func chown(t *testing.T, path string, uid int) error {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	return os.Chown(path, uid, uid)
}

// A command whose argument or variable is too long for the system is not retried, because each
// attempt would fail. The error suggests stdin.
func TestAnArgumentThatIsTooLongIsPermanent(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	s := clitest.Serve(t, `version: 1
workflows:
  argument: {steps: [{id: a, run: [echo, "{{ .input }}"], policy: fixed(1ms) attempts=5}]}
  variable: {steps: [{id: a, run: [echo], env: {X: "{{ .input }}"}, policy: fixed(1ms) attempts=5}]}
  stdin: {steps: [{id: a, run: [wc, -c], stdin: "{{ .input }}", policy: fixed(1ms) attempts=5}]}
`, "")
	input := filepath.Join(s.Folder, "input")
	clitest.WriteFile(t, input, `"`+strings.Repeat("x", 200<<10)+`"`)
	for _, workflow := range []string{"argument", "variable"} {
		o := s.RunCommand("run", workflow, "--input", "@"+input, "--wait")
		clitest.WantCode(t, o, 1)
		i := s.Show(strings.Fields(o.Stderr)[2])
		if i.Attempts != 1 || i.Reason != "permanent" || !strings.Contains(i.Error, "argument list too long") || !strings.Contains(i.Error, "stdin") {
			t.Errorf("%s: %s (%s) after %d attempts: %s", workflow, i.State, i.Reason, i.Attempts, i.Error)
		}
	}
	o := s.RunCommand("run", "stdin", "--input", "@"+input, "--wait")
	clitest.WantCode(t, o, 0)
	clitest.WantIn(t, "output", o.Out, "204800")
}

func TestConfigCheckWarnsOfTemplatesInScripts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tideover.yaml")
	clitest.WriteFile(t, file, `version: 1
notify: {told: {run: [bash, -c, "say '{{ .title }}'"]}}
workflows:
  w:
    steps:
      - {id: bad, run: [sh, -euc, "deploy {{ .input.x }}"]}
      - {id: wrapped, run: [timeout, "5", /bin/sh, -c, "deploy {{ .input.x }}"]}
      - {id: good, run: [sh, -c, 'deploy "$1"', sh, "{{ .input.x }}"]}
      - {id: file, run: [sh, ./deploy.sh, "{{ .input.x }}"]}
      - {id: none, run: [deploy, "{{ .input.x }}"]}
`)
	cmd, _ := clitest.Command(t, "config", "check", file)
	o := clitest.Finish(t, cmd)
	clitest.WantCode(t, o, 0)
	for _, want := range []string{"notify.told.run[2]: the shell runs", "workflows.w.steps[0].run[2]: the shell runs", "workflows.w.steps[1].run[4]: the shell runs", `which reads it as "$1"`} {
		clitest.WantIn(t, "config check", o.Stderr, want)
	}
	if n := strings.Count(o.Stderr, "warning: "); n != 3 {
		t.Errorf("%d warnings:\n%s", n, o.Stderr)
	}
}

// docs/security.md states the same limits as the code.
func TestTheLimitsOfThePageHold(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(testfile.Repository(t, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		fmt.Sprintf("| input of a run | %d KiB", steps.MaxPayload>>10),
		fmt.Sprintf("| body of an API request | %d MiB", httpserver.DefaultMaxBody>>20),
		fmt.Sprintf("(`output-limit`, at most %d KiB)", steps.MaxOutput>>10),
		"| an argument or a variable of a command | 128 KiB on Linux",
	} {
		clitest.WantIn(t, "security.md", string(page), row)
	}
	s := clitest.Serve(t, "version: 1\nworkflows: {w: {steps: [{id: a, run: [wc, -c], stdin: '{{ .input }}'}]}}\n", "")
	input := filepath.Join(s.Folder, "input")
	clitest.WriteFile(t, input, `"`+strings.Repeat("x", steps.MaxPayload-2)+`"`)
	clitest.WantCode(t, s.RunCommand("run", "w", "--input", "@"+input, "--wait"), 0)
	clitest.WriteFile(t, input, `"`+strings.Repeat("x", steps.MaxPayload-1)+`"`)
	o := s.RunCommand("run", "w", "--input", "@"+input)
	if o.Code == 0 || !strings.Contains(o.Stderr, fmt.Sprint(steps.MaxPayload)) {
		t.Errorf("a larger input: %d %s", o.Code, o.Stderr)
	}
	clitest.WriteFile(t, input, `"`+strings.Repeat("x", 3<<20)+`"`)
	if o := s.RunCommand("run", "w", "--input", "@"+input); o.Code == 0 {
		t.Errorf("an input of 3 MiB: %d %s", o.Code, o.Out)
	}
}
