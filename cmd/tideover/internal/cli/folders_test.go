//go:build unix

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/internal/testwait"
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
			dir := shortDir(t)
			data, file := filepath.Join(dir, "data"), filepath.Join(dir, "tideover.yaml")
			if err := os.Mkdir(data, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(data, "token"), "planted-token-of-a-stranger\n")
			write(t, file, "version: 1\nworkflows: {w: {steps: [{id: a, run: [echo, done]}]}}\n")
			if err := c.plant(t, dir, data, file); err != nil {
				t.Fatal(err)
			}
			s := &serverProcess{backgroundProcess: &backgroundProcess{t: t, dir: dir}, out: new(syncBuffer)}
			s.Cmd, s.mark = command(t, "serve", "--config", file, "--data", data, "--listen", "127.0.0.1:0")
			s.Stdout, s.Stderr = s.out, s.out
			s.begin()
			ended := make(chan int, 1)
			go func() { ended <- s.wait().code }()
			var code int
			over, served := false, false
			testwait.Until(t, "the server ends, or serves", func() bool {
				select {
				case code = <-ended:
					over = true
				default:
					served = strings.Contains(s.out.String(), "the page is at")
				}
				return over || served
			})
			if served {
				_ = s.Process.Kill()
				<-ended
				t.Fatal("it is served")
			}
			if code == 0 || !strings.Contains(s.out.String(), c.want) {
				t.Errorf("exit code %d, want an error that has %q: %s", code, c.want, s.out)
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
	onlyLinux(t)
	s := serveFile(t, `version: 1
workflows:
  argument: {steps: [{id: a, run: [echo, "{{ .input }}"], policy: fixed(1ms) attempts=5}]}
  variable: {steps: [{id: a, run: [echo], env: {X: "{{ .input }}"}, policy: fixed(1ms) attempts=5}]}
  stdin: {steps: [{id: a, run: [wc, -c], stdin: "{{ .input }}", policy: fixed(1ms) attempts=5}]}
`, "")
	input := filepath.Join(s.dir, "input")
	write(t, input, `"`+strings.Repeat("x", 200<<10)+`"`)
	for _, workflow := range []string{"argument", "variable"} {
		o := s.runCommand("run", workflow, "--input", "@"+input, "--wait")
		wantCode(t, o, 1)
		i := s.show(strings.Fields(o.stderr)[2])
		if i.Attempts != 1 || i.Reason != "permanent" || !strings.Contains(i.Error, "argument list too long") || !strings.Contains(i.Error, "stdin") {
			t.Errorf("%s: %s (%s) after %d attempts: %s", workflow, i.State, i.Reason, i.Attempts, i.Error)
		}
	}
	o := s.runCommand("run", "stdin", "--input", "@"+input, "--wait")
	wantCode(t, o, 0)
	wantIn(t, "output", o.out, "204800")
}

func TestConfigCheckWarnsOfTemplatesInScripts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tideover.yaml")
	write(t, file, `version: 1
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
	cmd, _ := command(t, "config", "check", file)
	o := finish(t, cmd)
	wantCode(t, o, 0)
	for _, want := range []string{"notify.told.run[2]: the shell runs", "workflows.w.steps[0].run[2]: the shell runs", "workflows.w.steps[1].run[4]: the shell runs", `which reads it as "$1"`} {
		wantIn(t, "config check", o.stderr, want)
	}
	if n := strings.Count(o.stderr, "warning: "); n != 3 {
		t.Errorf("%d warnings:\n%s", n, o.stderr)
	}
}

// docs/security.md states the same limits as the code.
func TestTheLimitsOfThePageHold(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		fmt.Sprintf("| input of a run | %d KiB", steps.MaxPayload>>10),
		fmt.Sprintf("| body of an API request | %d MiB", httpserver.DefaultMaxBody>>20),
		fmt.Sprintf("(`output-limit`, at most %d KiB)", steps.MaxOutput>>10),
		"| an argument or a variable of a command | 128 KiB on Linux",
	} {
		wantIn(t, "security.md", string(page), row)
	}
	s := serveFile(t, "version: 1\nworkflows: {w: {steps: [{id: a, run: [wc, -c], stdin: '{{ .input }}'}]}}\n", "")
	input := filepath.Join(s.dir, "input")
	write(t, input, `"`+strings.Repeat("x", steps.MaxPayload-2)+`"`)
	wantCode(t, s.runCommand("run", "w", "--input", "@"+input, "--wait"), 0)
	write(t, input, `"`+strings.Repeat("x", steps.MaxPayload-1)+`"`)
	o := s.runCommand("run", "w", "--input", "@"+input)
	if o.code == 0 || !strings.Contains(o.stderr, fmt.Sprint(steps.MaxPayload)) {
		t.Errorf("a larger input: %d %s", o.code, o.stderr)
	}
	write(t, input, `"`+strings.Repeat("x", 3<<20)+`"`)
	if o := s.runCommand("run", "w", "--input", "@"+input); o.code == 0 {
		t.Errorf("an input of 3 MiB: %d %s", o.code, o.out)
	}
}
