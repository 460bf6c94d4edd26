//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"
)

// serverProcess is a `tideover serve` with its own configuration.
type serverProcess struct {
	*backgroundProcess
	out  *syncBuffer
	file string
	data string
}

// serveFile starts a server with the configuration text, and waits until it serves. If dir is
// empty, it creates a new folder. env has further variables.
func serveFile(t *testing.T, text, dir string, env ...string) *serverProcess {
	t.Helper()
	s := beginServe(t, text, dir, env...)
	s.serves()
	return s
}

// serves waits until the server serves.
func (s *serverProcess) serves() {
	s.t.Helper()
	testwait.Until(s.t, "the server serves", func() bool { return strings.Contains(s.out.String(), "the page is at") })
}

// beginServe is serveFile, except that it does not wait until the server serves.
func beginServe(t *testing.T, text, dir string, env ...string) *serverProcess {
	t.Helper()
	return beginServeWith(t, nil, text, dir, env...)
}

// beginServeWith is beginServe with further flags.
func beginServeWith(t *testing.T, flags []string, text, dir string, env ...string) *serverProcess {
	t.Helper()
	if dir == "" {
		dir = shortDir(t)
	}
	s := &serverProcess{backgroundProcess: &backgroundProcess{t: t, dir: dir}, file: filepath.Join(dir, "tideover.yaml"), data: filepath.Join(dir, "data"), out: new(syncBuffer)}
	write(t, s.file, text)
	s.Cmd, s.mark = command(t, append([]string{"serve", "--config", s.file, "--data", s.data, "--listen", "127.0.0.1:0"}, flags...)...)
	s.Env = append(append(s.Env, "DIR="+dir, "TIDEOVER_SERVER_ENV_INHERIT=DIR"), env...)
	s.Stdout, s.Stderr = s.out, s.out
	s.begin()
	return s
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// runCommand runs a command against the server.
func (s *serverProcess) runCommand(args ...string) outcome {
	s.t.Helper()
	server := "unix:" + filepath.Join(s.data, "tideover.sock")
	if args[0] == "doctor" { // so that a test covers $TIDEOVER_SERVER, too
		cmd, _ := command(s.t, args...)
		cmd.Env = append(cmd.Env, "TIDEOVER_SERVER="+server)
		return finish(s.t, cmd)
	}
	return inProcess(s.t, append(slices.Clone(args), "--server", server)...)
}

// page returns the address of the web page, including the token.
func (s *serverProcess) page() string {
	_, rest, _ := strings.Cut(s.out.String(), "the page is at ")
	page, _, _ := strings.Cut(rest, "\n")
	return page
}

// show returns the run with this id.
func (s *serverProcess) show(id string) *engine.Info {
	s.t.Helper()
	var i engine.Info
	o := s.runCommand("show", id, "--json")
	if err := json.Unmarshal([]byte(o.out), &i); err != nil {
		s.t.Fatalf("show: %v in %q; %q", err, o.out, o.stderr)
	}
	return &i
}

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
	onlyLinux(t)
	s := serveFile(t, commands, "", "PLANTED=planted-value")
	o := s.runCommand("run", "report", "--input", `{"who":"ada"}`, "--wait")
	wantCode(t, o, 0)
	wantIn(t, "output", o.out, `"42 rendered\n"`)

	for _, c := range []struct {
		workflow       string
		exit, attempts int
	}{{"codes", 75, 3}, {"codes", 80, 3}, {"codes", 5, 1}, {"codes", 127, 1}, {"never", 5, 3}, {"never", 81, 1}, {"never", 126, 1}} {
		o := s.runCommand("run", c.workflow, "--input", fmt.Sprint(c.exit), "--wait")
		wantCode(t, o, 1)
		id := strings.Fields(o.stderr)[2]
		if i := s.show(id); i.Attempts != c.attempts {
			t.Errorf("%s with exit code %d: %d attempts, want %d: %s", c.workflow, c.exit, i.Attempts, c.attempts, i.Error)
		}
	}

	o = s.runCommand("run", "limited", "--wait")
	wantCode(t, o, 1)
	wantIn(t, "error", o.stderr, "timed out after 3s")
	if pid := s.sign("hang"); alive(pid) {
		t.Errorf("process %s outlived its timeout", pid)
	}

	o = s.runCommand("run", "big", "--wait")
	wantCode(t, o, 0)
	wantIn(t, "output", o.out, `"truncated":true`)

	o = s.runCommand("run", "number", "--wait", "--input", `{"n": 12345678901234567890}`)
	wantCode(t, o, 0)
	wantIn(t, "output", o.out, `"12345678901234567890 ***\n"`)

	// If the guard is killed, its command dies too, and the attempt is made again.
	o = s.runCommand("run", "orphan", "--wait")
	wantCode(t, o, 0)

	o = s.runCommand("run", "alarm", "--wait")
	wantCode(t, o, 1)
	testwait.Until(t, "on-give-up runs", func() bool { return lines(filepath.Join(s.dir, "alarm")) == 1 })
	wantIn(t, "alarm", s.sign("alarm"), " -1 fail attempts exit code 3: oops")

	s.signal(syscall.SIGTERM)
	wantCode(t, s.wait(), 0)
	wantNoProcess(t, s.mark)
}

func TestAKilledServerLeavesNothingRunningTwice(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
	dir := shortDir(t)
	s := serveFile(t, commands, dir, "PLANTED=planted-value")
	id := strings.TrimSpace(s.runCommand("run", "long").out)
	s.sign("pid")
	s.signal(syscall.SIGKILL)
	s.wait()
	again := serveFile(t, commands, dir, "PLANTED=planted-value")
	testwait.Until(t, "the attempt is made again", func() bool { return lines(filepath.Join(dir, "log")) >= 3 })
	data, _ := os.ReadFile(filepath.Join(dir, "log"))
	if got := string(data); got != "begin 1\nend 1\nbegin 1\n" {
		t.Errorf("attempts overlap: %q", got)
	}
	testwait.Until(t, "what the first server ran is gone", func() bool { return len(survivors(t, s.mark)) == 0 })
	i := again.show(id)
	if a := i.Steps[0].Attempts; len(a) != 2 || a[0].Outcome != "lost" || i.Steps[0].Spent != 0 {
		t.Errorf("%+v", i.Steps[0])
	}
	wantCode(t, again.runCommand("cancel", id), 0)
	testwait.Until(t, "the command is ended", func() bool { return lines(filepath.Join(dir, "log")) >= 4 })
	again.signal(syscall.SIGTERM)
	wantCode(t, again.wait(), 0)
	wantNoProcess(t, again.mark)
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
	s := serveFile(t, file, "", "HOOK=s3cret-value")
	o := s.runCommand("run", "post", "--wait", "--input", `{"a":1}`)
	wantCode(t, o, 0)
	wantIn(t, "output", o.out, `"stdout":"{\"ok\": true}"`)
	if calls.Load() != 3 || keys[0] == "" || keys[0] != keys[2] {
		t.Errorf("%d calls, keys %q", calls.Load(), keys)
	}
	o = s.runCommand("run", "gone", "--wait")
	wantCode(t, o, 1)
	wantIn(t, "error", o.stderr, `status 410 Gone (GET "http://127.0.0.1:`)
	if calls.Load() != 4 {
		t.Errorf("a permanent answer was asked for again: %d calls", calls.Load())
	}
	// The repeated request has the same key, and the run shows why it was repeated.
	first := firstID(t, s.runCommand("runs", "--workflow", "post", "--json").out)
	again := strings.TrimSpace(s.runCommand("retry", "--from", "send", first).out)
	again = again[strings.LastIndexByte(again, ' ')+1:]
	testwait.Until(t, "the run that repeats it", func() bool { return s.show(again).State == "succeeded" })
	if i := s.show(again); keys[4] != keys[0] || i.Origin != first || i.ReplayOf != first {
		t.Errorf("the repetition has the Idempotency-Key %q, want %q; its origin is %q", keys[4], keys[0], i.Origin)
	}
	// The secret is not in any output, in the log or on disk.
	runs := s.runCommand("runs", "--json").out
	for _, text := range []string{s.out.String(), runs, s.runCommand("events", "--json").out, s.runCommand("show", "--json", firstID(t, runs)).out} {
		if strings.Contains(text, "s3cret-value") {
			t.Errorf("the secret shows in %q", text)
		}
	}
	s.signal(syscall.SIGTERM)
	wantCode(t, s.wait(), 0)
	_ = filepath.WalkDir(s.data, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if data, _ := os.ReadFile(path); bytes.Contains(data, []byte("s3cret-value")) {
				t.Errorf("the secret is in %s", path)
			}
		}
		return nil
	})
}

func firstID(t *testing.T, runs string) string {
	t.Helper()
	var page engine.Page
	if err := json.Unmarshal([]byte(runs), &page); err != nil || len(page.Runs) == 0 {
		t.Fatalf("%v in %q", err, runs)
	}
	return page.Runs[len(page.Runs)-1].ID
}

func TestTheFileIsLoadedAgain(t *testing.T) {
	t.Parallel()
	one := "version: 1\nworkflows: {one: {steps: [{id: s, run: [echo, one]}]}}\n"
	two := "version: 1\nworkflows: {two: {steps: [{id: s, run: [echo, two]}]}}\n"
	s := serveFile(t, one, "")
	wantCode(t, s.runCommand("run", "one", "--wait"), 0)
	write(t, s.file, two)
	s.signal(syscall.SIGHUP)
	testwait.Until(t, "the new workflow is there", func() bool { return s.runCommand("run", "two", "--wait").code == 0 })
	if o := s.runCommand("run", "one"); o.code == 0 {
		t.Error("the old workflow still starts")
	}
	write(t, s.file, "version: 1\nworkflows: {two: {stepz: []}}\n")
	s.signal(syscall.SIGHUP)
	testwait.Until(t, "the error is said", func() bool {
		return strings.Contains(s.out.String(), `workflows.two: \"steps\" is missing" more=1 hint="tideover config check `+s.file)
	})
	wantCode(t, s.runCommand("run", "two", "--wait"), 0)
	s.signal(syscall.SIGTERM)
	wantCode(t, s.wait(), 0)
}

func TestTwoServersDoNotShareAFolder(t *testing.T) {
	t.Parallel()
	text := "version: 1\nworkflows: {one: {steps: [{id: s, run: [echo, one]}]}}\n"
	s := serveFile(t, text, "")
	o := tideover(t, "serve", "--config", s.file, "--data", s.data, "--listen", "127.0.0.1:0")
	wantCode(t, o, 125)
	wantIn(t, "error", o.stderr, "in use")
	wantCode(t, s.runCommand("run", "one", "--wait"), 0)
}

func TestServeSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	write(t, bad, "version: 1\nworkflows:\n  w:\n    steps:\n      - {id: a, run: [x], policy: fixed(1s) atempts=3}\n")
	o := tideover(t, "serve", "--config", bad, "--data", dir)
	wantCode(t, o, 125)
	wantIn(t, "error", o.stderr, "bad.yaml:5")
	wantIn(t, "error", o.stderr, "atempts")
	if _, err := os.Stat(filepath.Join(dir, "log.db")); err == nil {
		t.Error("something was begun")
	}
	o = tideover(t, "serve", "--config", filepath.Join(dir, "none.yaml"))
	wantCode(t, o, 125)
	wantIn(t, "error", o.stderr, "none.yaml")
	o = tideover(t, "config", "check", bad)
	wantCode(t, o, 125)
	wantIn(t, "error", o.stderr, "^")
}

// syncBuffer is a buffer that a process writes to while a test reads it.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func shortDir(t *testing.T) string {
	t.Helper()
	return testfile.ShortDir(t)
}
