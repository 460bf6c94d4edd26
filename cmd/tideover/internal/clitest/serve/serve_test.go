//go:build unix

package serve_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

const commands = `version: 1
workflows:
  report:
    input: {who: stranger}
    steps:
      - id: fetch
        run: [sh, -c, 'echo "attempt $TIDEOVER_ATTEMPT of $TIDEOVER_ATTEMPTS for $1" >&2; test $TIDEOVER_ATTEMPT -ge 3 && echo "{\"n\": 42}"', sh, "{{ .input.who }}"]
        policy: fixed(10ms) attempts=5
      - id: render
        run: [sh, -c, 'cat; echo " rendered"']
        stdin: "{{ .steps.fetch.output.n }}"
        needs: [fetch]
  codes:
    steps:
      - {id: exit, run: [sh, -c, "exit {{ .input }}"], policy: fixed(1ms) attempts=3, retry-exit: [75, 80-89]}
  never:
    steps:
      - {id: exit, run: [sh, -c, "exit {{ .input }}"], policy: fixed(1ms) attempts=3, permanent-exit: [81]}
  long:
    steps:
      - id: sleep
        run: [sh, -c, 'echo begin $TIDEOVER_ATTEMPT >> $DIR/log; trap "sleep 0.3; echo end $TIDEOVER_ATTEMPT >> $DIR/log; exit 1" TERM; (setsid sleep 600 &); sleep 600 & echo $$ > $DIR/pid; wait']
        policy: fixed(10ms) attempts=3
  limited:
    steps:
      - {id: hang, run: [sh, -c, 'echo $$ > $DIR/hang; sleep 600'], policy: fixed(10ms) attempts=2 attempt-timeout=3s}
  big:
    steps:
      - {id: talk, run: [sh, -c, 'head -c 3000000 /dev/zero | tr "\0" "\1"'], output-limit: 100KiB}
  alarm:
    steps:
      - {id: fail, run: [sh, -c, 'echo oops >&2; exit 3'], policy: fixed(1ms) attempts=2}
    on-give-up: {run: [sh, -c, 'echo "$*" >> $DIR/alarm', sh, "{{ .run.id }}", "{{ .steps.fail.exit }}", "{{ .run.step }}", "{{ .run.reason }}", "{{ .run.error }}"]}
  number:
    steps:
      - {id: say, run: [echo, "{{ .input.n }}"], env: {S: "${env:PLANTED}"}}
      - {id: again, run: [sh, -c, 'cat; echo " $S"'], stdin: "{{ .steps.say.output }}", needs: [say], env: {S: "${env:PLANTED}"}}
  orphan:
    steps:
      - {id: kill, run: [sh, -c, 'echo begin $TIDEOVER_ATTEMPT >> $DIR/orphan; test $TIDEOVER_ATTEMPT = 2 || { kill -9 $PPID; sleep 600; }'], policy: fixed(10ms) attempts=3, retry-exit: [75]}
`

func TestCommandsAsSteps(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	s := clitest.Serve(t, commands, "", "PLANTED=planted-value")
	o := s.RunCommand("run", "report", "--input", `{"who":"ada"}`, "--wait")
	clitest.WantCode(t, o, 0)
	clitest.WantIn(t, "output", o.Out, `"42 rendered\n"`)

	for _, c := range []struct {
		workflow       string
		exit, attempts int
	}{{"codes", 75, 3}, {"codes", 80, 3}, {"codes", 5, 1}, {"codes", 127, 1}, {"never", 5, 3}, {"never", 81, 1}, {"never", 126, 1}} {
		o := s.RunCommand("run", c.workflow, "--input", fmt.Sprint(c.exit), "--wait")
		clitest.WantCode(t, o, 1)
		id := strings.Fields(o.Stderr)[2]
		if i := s.Show(id); i.Attempts != c.attempts {
			t.Errorf("%s with exit code %d: %d attempts, want %d: %s", c.workflow, c.exit, i.Attempts, c.attempts, i.Error)
		}
	}

	o = s.RunCommand("run", "limited", "--wait")
	clitest.WantCode(t, o, 1)
	clitest.WantIn(t, "error", o.Stderr, "timed out after 3s")
	if pid := s.AwaitSign("hang"); clitest.Alive(pid) {
		t.Errorf("process %s outlived its timeout", pid)
	}

	o = s.RunCommand("run", "big", "--wait")
	clitest.WantCode(t, o, 0)
	clitest.WantIn(t, "output", o.Out, `"truncated":true`)

	o = s.RunCommand("run", "number", "--wait", "--input", `{"n": 12345678901234567890}`)
	clitest.WantCode(t, o, 0)
	clitest.WantIn(t, "output", o.Out, `"12345678901234567890 ***\n"`)

	// If the guard is killed, its command dies too, and the attempt is made again.
	o = s.RunCommand("run", "orphan", "--wait")
	clitest.WantCode(t, o, 0)

	o = s.RunCommand("run", "alarm", "--wait")
	clitest.WantCode(t, o, 1)
	testwait.Until(t, "on-give-up runs", func() bool { return clitest.CountLines(filepath.Join(s.Folder, "alarm")) == 1 })
	clitest.WantIn(t, "alarm", s.AwaitSign("alarm"), " -1 fail attempts exit code 3: oops")

	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
	clitest.WantNoProcess(t, s.Mark)
}

func TestAKilledServerLeavesNothingRunningTwice(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	dir := clitest.ShortDir(t)
	s := clitest.Serve(t, commands, dir, "PLANTED=planted-value")
	id := strings.TrimSpace(s.RunCommand("run", "long").Out)
	s.AwaitSign("pid")
	s.Signal(syscall.SIGKILL)
	s.End()
	again := clitest.Serve(t, commands, dir, "PLANTED=planted-value")
	testwait.Until(t, "the attempt is made again", func() bool { return clitest.CountLines(filepath.Join(dir, "log")) >= 3 })
	data, _ := os.ReadFile(filepath.Join(dir, "log"))
	if got := string(data); got != "begin 1\nend 1\nbegin 1\n" {
		t.Errorf("attempts overlap: %q", got)
	}
	testwait.Until(t, "what the first server ran is gone", func() bool { return len(clitest.Survivors(t, s.Mark)) == 0 })
	i := again.Show(id)
	if a := i.Steps[0].Attempts; len(a) != 2 || a[0].Outcome != "lost" || i.Steps[0].Spent != 0 {
		t.Errorf("%+v", i.Steps[0])
	}
	clitest.WantCode(t, again.RunCommand("cancel", id), 0)
	testwait.Until(t, "the command is ended", func() bool { return clitest.CountLines(filepath.Join(dir, "log")) >= 4 })
	again.Signal(syscall.SIGTERM)
	clitest.WantCode(t, again.End(), 0)
	clitest.WantNoProcess(t, again.Mark)
}

func TestRequestsAsSteps(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	var keys [5]string
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := calls.Add(1)
		if r.URL.Path == "/gone" {
			http.Error(w, "no such thing", http.StatusGone)
			return
		}
		if n != 4 {
			keys[n-1] = r.Header.Get("Idempotency-Key")
		}
		if r.Header.Get("Authorization") != "Bearer s3cret-value" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		if n < 3 {
			w.Header().Set("Retry-After", "0.05")
			http.Error(w, "busy, s3cret-value", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, `{"ok": true}`)
	}))
	defer up.Close()
	file := fmt.Sprintf(`version: 1
workflows:
  post:
    steps:
      - id: send
        http: {post: %q, headers: {Authorization: "Bearer ${env:HOOK}"}, body: "{{ json .input }}"}
        policy: fixed(1ms) attempts=5
  gone:
    steps:
      - {id: get, http: {get: %q}, policy: fixed(1ms) attempts=5}
`, up.URL, up.URL+"/gone")
	s := clitest.Serve(t, file, "", "HOOK=s3cret-value")
	o := s.RunCommand("run", "post", "--wait", "--input", `{"a":1}`)
	clitest.WantCode(t, o, 0)
	clitest.WantIn(t, "output", o.Out, `"stdout":"{\"ok\": true}"`)
	if calls.Load() != 3 || keys[0] == "" || keys[0] != keys[2] {
		t.Errorf("%d calls, keys %q", calls.Load(), keys)
	}
	o = s.RunCommand("run", "gone", "--wait")
	clitest.WantCode(t, o, 1)
	clitest.WantIn(t, "error", o.Stderr, `status 410 Gone (GET "http://127.0.0.1:`)
	if calls.Load() != 4 {
		t.Errorf("a permanent answer was asked for again: %d calls", calls.Load())
	}
	// The repeated request has the same key, and the run shows why it was repeated.
	first := clitest.FirstID(t, s.RunCommand("runs", "--workflow", "post", "--json").Out)
	again := strings.TrimSpace(s.RunCommand("retry", "--from", "send", first).Out)
	again = again[strings.LastIndexByte(again, ' ')+1:]
	testwait.Until(t, "the run that repeats it", func() bool { return s.Show(again).State == "succeeded" })
	if i := s.Show(again); keys[4] != keys[0] || i.Origin != first || i.ReplayOf != first {
		t.Errorf("the repetition has the Idempotency-Key %q, want %q; its origin is %q", keys[4], keys[0], i.Origin)
	}
	// The secret is not in any output, in the log or on disk.
	runs := s.RunCommand("runs", "--json").Out
	for _, text := range []string{s.Log.String(), runs, s.RunCommand("events", "--json").Out, s.RunCommand("show", "--json", clitest.FirstID(t, runs)).Out} {
		if strings.Contains(text, "s3cret-value") {
			t.Errorf("the secret shows in %q", text)
		}
	}
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
	_ = filepath.WalkDir(s.Data, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if data, _ := os.ReadFile(path); bytes.Contains(data, []byte("s3cret-value")) {
				t.Errorf("the secret is in %s", path)
			}
		}
		return nil
	})
}

func TestTheFileIsLoadedAgain(t *testing.T) {
	t.Parallel()
	one := "version: 1\nworkflows: {one: {steps: [{id: s, run: [echo, one]}]}}\n"
	two := "version: 1\nworkflows: {two: {steps: [{id: s, run: [echo, two]}]}}\n"
	s := clitest.Serve(t, one, "")
	clitest.WantCode(t, s.RunCommand("run", "one", "--wait"), 0)
	clitest.WriteFile(t, s.File, two)
	s.Signal(syscall.SIGHUP)
	testwait.Until(t, "the new workflow is there", func() bool { return s.RunCommand("run", "two", "--wait").Code == 0 })
	if o := s.RunCommand("run", "one"); o.Code == 0 {
		t.Error("the old workflow still starts")
	}
	clitest.WriteFile(t, s.File, "version: 1\nworkflows: {two: {stepz: []}}\n")
	s.Signal(syscall.SIGHUP)
	testwait.Until(t, "the error is said", func() bool {
		return strings.Contains(s.Log.String(), `workflows.two: \"steps\" is missing" more=1 hint="tideover config check `+s.File)
	})
	clitest.WantCode(t, s.RunCommand("run", "two", "--wait"), 0)
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
}

func TestTwoServersDoNotShareAFolder(t *testing.T) {
	t.Parallel()
	text := "version: 1\nworkflows: {one: {steps: [{id: s, run: [echo, one]}]}}\n"
	s := clitest.Serve(t, text, "")
	o := clitest.Run(t, "serve", "--config", s.File, "--data", s.Data, "--listen", "127.0.0.1:0")
	clitest.WantCode(t, o, 125)
	clitest.WantIn(t, "error", o.Stderr, "in use")
	clitest.WantCode(t, s.RunCommand("run", "one", "--wait"), 0)
}

func TestServeSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	clitest.WriteFile(t, bad, "version: 1\nworkflows:\n  w:\n    steps:\n      - {id: a, run: [x], policy: fixed(1s) atempts=3}\n")
	o := clitest.Run(t, "serve", "--config", bad, "--data", dir)
	clitest.WantCode(t, o, 125)
	clitest.WantIn(t, "error", o.Stderr, "bad.yaml:5")
	clitest.WantIn(t, "error", o.Stderr, "atempts")
	if _, err := os.Stat(filepath.Join(dir, "log.db")); err == nil {
		t.Error("something was begun")
	}
	o = clitest.Run(t, "serve", "--config", filepath.Join(dir, "none.yaml"))
	clitest.WantCode(t, o, 125)
	clitest.WantIn(t, "error", o.Stderr, "none.yaml")
	o = clitest.Run(t, "config", "check", bad)
	clitest.WantCode(t, o, 1)
	clitest.WantIn(t, "error", o.Stderr, "^")
}
