//go:build unix

package docs_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// A real `go test` runs on a module with a package that passes and one that fails the first time.
func TestRecipeFlakyTest(t *testing.T) {
	t.Parallel()
	clitest.NeedTools(t, "go")
	k := newRecipe(t, "A flaky test in CI")
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	// With the flags of this test, what it needs is compiled already.
	k.Env = append(k.Env, "GOCACHE="+strings.TrimSpace(string(cache)), "GOFLAGS="+os.Getenv("GOFLAGS")+" -vet=off",
		"CGO_ENABLED="+os.Getenv("CGO_ENABLED"), "GOWORK=off", "GOTOOLCHAIN=local", "SEEN="+filepath.Join(k.Home, "seen"))
	k.Write(k.Path("go.mod"), "module example.com/shop\n\ngo 1.21\n", 0o600)
	k.Write(k.Path("steady/steady_test.go"), "package steady\n\nimport \"testing\"\n\nfunc TestIt(t *testing.T) {}\n", 0o600)
	k.Write(k.Path("flaky/flaky_test.go"), `package flaky

import (
	"os"
	"testing"
)

func TestIt(t *testing.T) {
	f, err := os.OpenFile(os.Getenv("SEEN"), os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		f.Close()
		t.Fatal("for no reason")
	}
}
`, 0o600)
	got := k.Run(0)
	clitest.WantCode(t, got, 0)
	for _, part := range []string{"for no reason", "ok  \texample.com/shop/steady\t(cached)", "ok  \texample.com/shop/flaky"} {
		clitest.WantIn(t, "stdout", got.Out, part)
	}
	clitest.WantIn(t, "stderr", got.Stderr, "attempt 2/3 succeeded")
	events, err := os.ReadFile(k.Path("flaky.jsonl"))
	if failed := strings.Count(string(events), `"kind":"attempt-failed"`); err != nil || failed != 1 {
		t.Errorf("flaky.jsonl tells of %d failures, want 1: %v\n%s", failed, err, events)
	}

	k.Write(k.Path("flaky/broken_test.go"), "package flaky\n\nvar x int = \"y\"\n", 0o600)
	if err := os.Remove(k.Path("flaky.jsonl")); err != nil {
		t.Fatal(err)
	}
	clitest.WantCode(t, k.Run(0), 1)
	if clitest.CountLines(k.Path("flaky.jsonl")) > 0 {
		t.Error("what does not compile was tested")
	}
}

func TestRecipeDatabase(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, pgIsReady string
		code            int
		asked, served   int
	}{
		{"comes up", `case $n in 1) exit 2;; 2) exit 1;; esac`, 0, 3, 1},
		{"is asked for wrongly", `exit 3`, 3, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k := newRecipe(t, "Waiting for a database")
			k.Fake("pg_isready", tt.pgIsReady)
			k.Write(k.Path("server"), "#!/bin/sh\necho served\n", 0o700)
			k.Env = append(k.Env, "PGHOST=db.example.com")
			got := k.Run(0)
			clitest.WantCode(t, got, tt.code)
			wantCalls(k, "pg_isready", slices.Repeat([]string{"-q -h db.example.com"}, tt.asked)...)
			if n := strings.Count(got.Out, "served\n"); n != tt.served {
				t.Errorf("the server was started %d times, want %d", n, tt.served)
			}
		})
	}
}

// timedServer is a server that records the time of each request.
type timedServer struct {
	*httptest.Server
	mu sync.Mutex
	at []time.Time
}

// newTimedServer returns a server with these answers in order; the last is repeated.
func newTimedServer(t *testing.T, answers ...http.HandlerFunc) *timedServer {
	t.Helper()
	a := new(timedServer)
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		a.mu.Lock()
		a.at = append(a.at, time.Now())
		answer := answers[min(len(a.at), len(answers))-1]
		a.mu.Unlock()
		answer(w, req)
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *timedServer) times() []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.at)
}

// answer responds with a status, and with Retry-After if that is not empty.
func answer(status int, after string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintln(w, "status", status)
	}
}

func TestRecipeRetryAfter(t *testing.T) {
	t.Parallel()
	clitest.NeedTools(t, "curl")
	for _, tt := range []struct {
		name    string
		answers []http.HandlerFunc
		code    int
		least   []time.Duration // shortest times between the requests
		said    string
	}{
		{
			"in seconds, and a failure without", []http.HandlerFunc{answer(429, "3"), answer(503, ""), answer(200, "")}, 0,
			[]time.Duration{3 * time.Second, 800 * time.Millisecond}, "rate-limit, exit code 22: Retry-After: 3; next at ",
		},
		{
			"as a date", []http.HandlerFunc{
				func(w http.ResponseWriter, r *http.Request) {
					answer(503, time.Now().Add(4*time.Second).UTC().Format(http.TimeFormat))(w, r)
				},
				answer(200, ""),
			}, 0, []time.Duration{3 * time.Second}, "rate-limit, exit code 22: Retry-After: ",
		},
		{"of more than an hour", []http.HandlerFunc{answer(429, "7200")}, 22, nil, "gave up (server-wait)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := newTimedServer(t, tt.answers...)
			k := newRecipe(t, "curl with Retry-After")
			k.Env = append(k.Env, "API_URL="+server.URL)
			got := k.Run(0)
			clitest.WantCode(t, got, tt.code)
			clitest.WantIn(t, "stderr", got.Stderr, tt.said)
			times := server.times()
			if len(times) != len(tt.least)+1 {
				t.Fatalf("the server was asked %d times, want %d; stderr %q", len(times), len(tt.least)+1, got.Stderr)
			}
			for i, least := range tt.least {
				if d := times[i+1].Sub(times[i]); d < least {
					t.Errorf("request %d came after %v, want at least %v", i+2, d, least)
				}
			}
			if body, _ := os.ReadFile(k.Path("prices.json")); tt.code == 0 && string(body) != "status 200\n" {
				t.Errorf("prices.json = %q", body)
			}
		})
	}
}

// sessionOf returns the session with this name; a zero value if it does not exist.
func sessionOf(k *clitest.Recipe, name string) (st clitest.HostedSession) {
	k.T.Helper()
	got := clitest.Finish(k.T, k.Command("tideover", "sessions", "show", name, "--json"))
	_ = json.Unmarshal([]byte(got.Out), &st) // fails if the session does not exist yet
	return st
}

// untilSession waits until the condition holds for a session.
func untilSession(k *clitest.Recipe, name string, is func(clitest.HostedSession) bool) (st clitest.HostedSession) {
	k.T.Helper()
	testwait.Until(k.T, "session "+name, func() bool {
		st = sessionOf(k, name)
		return is(st)
	})
	return st
}

func waits(st clitest.HostedSession) bool { return st.State == "waiting" }

// limitedUntil returns the script of an assistant that reports a limit until at in its first call
// and succeeds in its second.
func limitedUntil(at time.Time) string {
	return `echo "Working on it."; test $n -ge 2 || { echo "You've hit your session limit · resets ` + at.Format("3:04pm") + ` (UTC)"; exit 1; }; echo "All done."`
}

const acceptEdits = " --permission-mode acceptEdits"

// wantResumed checks that the assistant was started and resumed with the same id.
func wantResumed(k *clitest.Recipe) {
	k.T.Helper()
	calls := calls(k, "claude")
	if len(calls) == 0 {
		k.T.Fatal("the assistant was not called")
	}
	_, id, _ := strings.Cut(calls[0], "--session-id ")
	if len(id) != 36 {
		k.T.Errorf("the id is %q", id)
	}
	wantCalls(k, "claude", "-p Work through TODO.md. Commit after each item."+acceptEdits+" --session-id "+id, "-p Continue."+acceptEdits+" --resume "+id)
}

func TestRecipeOverNight(t *testing.T) {
	t.Parallel()
	k := newRecipe(t, "An assistant over night")
	reset := time.Now().UTC().Add(2 * time.Hour).Truncate(time.Minute)
	k.Fake("claude", limitedUntil(reset))
	watch := k.Shell(0)
	var out clitest.SyncBuffer
	watch.Stdout, watch.Stderr = &out, &out
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	st := untilSession(k, "todo", waits)
	if late := st.Next.Sub(reset); late < 90*time.Second || late > 2*time.Minute {
		t.Errorf("waits until %v, want 90s after %v and a little", st.Next, reset)
	}
	if st.Windows != 1 || st.MaxWindows != 4 || st.Spent != 0 || st.Deadline == nil || st.Deadline.Sub(*st.Started) != 14*time.Hour {
		t.Errorf("session is %+v", st)
	}
	seen := k.Run(1)
	clitest.WantCode(t, seen, 0)
	for _, part := range []string{"todo  waiting  watch at ", "line        You've hit your session limit"} {
		clitest.WantIn(t, "sessions show", seen.Out, part)
	}
	if err := watch.Wait(); err != nil {
		t.Errorf("watch ended with %v: %s", err, out.String())
	}
	wantResumed(k)
	clitest.WantIn(t, "output", out.String(), "All done.")
}

// unit returns the value of a key in the unit docs/tideover.service, with %h expanded.
func unit(k *clitest.Recipe, key string) string {
	k.T.Helper()
	m := regexp.MustCompile(`(?m)^` + key + `=(.*)$`).FindStringSubmatch(clitest.ReadPage(k.T, "tideover.service"))
	if m == nil {
		k.T.Fatalf("the unit has no %s", key)
	}
	return strings.ReplaceAll(m[1], "%h", k.Home)
}

func TestRecipeSystemdUnit(t *testing.T) {
	t.Parallel()
	const heading = "A systemd unit"
	if k := newRecipe(t, heading); k.Blocks[0].Text != clitest.ReadPage(t, "tideover.service") {
		t.Error("docs/tideover.service is not what docs/recipes.md says")
	}
	t.Run("can be used by systemd", func(t *testing.T) {
		t.Parallel()
		clitest.NeedTools(t, "systemd-analyze")
		k := newRecipe(t, heading)
		runtime := filepath.Join(k.Home, "run")
		if err := os.MkdirAll(filepath.Join(runtime, "systemd"), 0o700); err != nil {
			t.Fatal(err)
		}
		k.Env = append(k.Env, "XDG_RUNTIME_DIR="+runtime)
		k.Fake("systemctl", "")
		k.Fake("loginctl", "")
		got := k.Run(0)
		clitest.WantCode(t, got, 0)
		if got.Stderr != "" {
			t.Errorf("stderr = %q", got.Stderr)
		}
		clitest.WantIn(t, "stdout", got.Out, "config.yaml: valid")
		wantCalls(k, "systemctl", "--user daemon-reload", "--user enable --now tideover")
		wantCalls(k, "loginctl", "enable-linger")
	})
	t.Run("does what systemd would do", func(t *testing.T) {
		t.Parallel()
		serveAsUnit(t, newRecipe(t, heading))
	})
}

// serveAsUnit runs the commands of the unit in the environment that systemd would give them.
func serveAsUnit(t *testing.T, k *clitest.Recipe) {
	t.Helper()
	k.Fake("claude", `pwd >> "`+k.Home+`/folder"; `+limitedUntil(time.Now().UTC().Add(2*time.Hour)))
	if err := os.MkdirAll(k.Path("~/src/shop"), 0o700); err != nil {
		t.Fatal(err)
	}
	k.Write(k.Path("~/.config/tideover/env"), "TIDEOVER_SERVER_LISTEN=127.0.0.1:0\n", 0o600)
	file := strings.TrimPrefix(unit(k, "EnvironmentFile"), "-")
	variables, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	start := func() (*exec.Cmd, *clitest.SyncBuffer) {
		argv := strings.Fields(unit(k, "ExecStart"))
		cmd, out := k.Command(argv[0], argv[1:]...), new(clitest.SyncBuffer)
		cmd.Dir, cmd.Env = "/", append([]string{"HOME=" + k.Home, unit(k, "Environment")}, strings.Fields(string(variables))...)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, out
	}
	end := func(cmd *exec.Cmd, out *clitest.SyncBuffer) {
		t.Helper()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve ended with %v: %s", err, out.String())
		}
	}
	serve, out := start()
	before := untilSession(k, "todo", waits)
	reload := strings.Fields(strings.ReplaceAll(unit(k, "ExecReload"), "$MAINPID", fmt.Sprint(serve.Process.Pid)))
	clitest.WantCode(t, clitest.Finish(t, k.Command(reload[0], reload[1:]...)), 0)
	testwait.Until(t, "the configuration is loaded again", func() bool { return strings.Contains(out.String(), "configuration loaded") })
	end(serve, out)

	serve, out = start()
	after := untilSession(k, "todo", waits)
	if after.In != "serve" || !after.Next.Equal(*before.Next) || after.Windows != 1 || after.MaxWindows != 4 {
		t.Errorf("before %+v\n after %+v", before, after)
	}
	clitest.WantCode(t, clitest.Finish(t, k.Command("tideover", "sessions", "wake", "todo")), 0)
	untilSession(k, "todo", func(st clitest.HostedSession) bool { return st.State == "completed" })
	end(serve, out)
	wantResumed(k)
	if folder, _ := os.ReadFile(filepath.Join(k.Home, "folder")); string(folder) != strings.Repeat(k.Path("~/src/shop")+"\n", 2) {
		t.Errorf("the assistant was run in %q", folder)
	}
}

func TestRecipePhone(t *testing.T) {
	t.Parallel()
	k := newRecipe(t, "A message on the phone")
	var mu sync.Mutex
	var told []string
	status := []int{200, 503, 200} // answers to the test message, to the message, and to its retry
	ntfy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body := make([]byte, 1000)
		n, _ := req.Body.Read(body)
		told = append(told, fmt.Sprintf("%s %s priority=%s title=%q %s", req.Method, req.URL.Path, req.Header.Get("Priority"), req.Header.Get("Title"), body[:n]))
		w.WriteHeader(status[min(len(told), len(status))-1])
	}))
	defer ntfy.Close()
	k.Env = append(k.Env, "NTFY_URL="+ntfy.URL+"/9yCk3vTq")
	k.Write(k.Path("backup.sh"), "#!/bin/sh\necho 'disk is full' >&2\nexit 7\n", 0o700)
	got := k.Run(0)
	clitest.WantCode(t, got, 7)
	clitest.WantIn(t, "stdout", got.Out, "sent by phone (ntfy)")
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 3 || told[1] != told[2] {
		t.Fatalf("the phone got %q", told)
	}
	clitest.WantIn(t, "test", told[0], `POST /9yCk3vTq priority=high title="tideover: a test of phone"`)
	clitest.WantIn(t, "message", told[2], `POST /9yCk3vTq priority=high title="backup.sh gave up" 2 attempts in `)
	clitest.WantIn(t, "message", told[2], "exited with 7")
}

// The line of the crontab runs as cron runs it: with sh, in the home folder, and with few variables.
func TestRecipeCron(t *testing.T) {
	t.Parallel()
	k := newRecipe(t, "A cron job")
	var mu sync.Mutex
	var sent []string
	ntfy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, req.URL.Path+" "+req.Header.Get("Title"))
	}))
	defer ntfy.Close()
	k.Write(k.Path("~/.config/tideover/ntfy-url"), ntfy.URL+"/9yCk3vTq\n", 0o600)
	k.Write(k.Path("~/tideover.yaml"), "version: 1\n", 0o600) // is not used, because of -c
	text, err := os.ReadFile(k.Path("crontab"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\d+ \d+ \* \* \* (.+)$`).FindStringSubmatch(string(text))
	if line == nil || strings.Contains(line[1], "%") {
		t.Fatalf("the crontab has no line that cron runs unchanged: %s", text)
	}
	command := strings.Replace(line[1], "-p daemon", "-p 'fixed(1ms) attempts=6'", 1)
	if command == line[1] {
		t.Fatalf("the crontab has another policy: %s", line[1])
	}
	job := func(script string) (clitest.Outcome, []string) {
		t.Helper()
		k.Write(k.Path("~/backup.sh"), "#!/bin/sh\necho a line\n"+script+"\n", 0o700)
		cmd := k.Command("/bin/sh", "-c", command)
		cmd.Dir = k.Home
		cmd.Env = []string{"HOME=" + k.Home, "PATH=/usr/bin:/bin", "SHELL=/bin/sh", "LOGNAME=tester", "NO_PROXY=127.0.0.1"}
		got := clitest.Finish(t, cmd)
		mu.Lock()
		defer mu.Unlock()
		return got, slices.Clone(sent)
	}

	got, messages := job(`test "$TIDEOVER_ATTEMPT" = 2`)
	clitest.WantCode(t, got, 0)
	if got.Out+got.Stderr != "" || len(messages) > 0 {
		t.Errorf("after a success, cron mails %q, and the phone gets %q", got.Out+got.Stderr, messages)
	}

	got, messages = job("exit 7")
	clitest.WantCode(t, got, 7)
	if got.Out != strings.Repeat("a line\n", 6) || !slices.Equal(messages, []string{"/9yCk3vTq backup.sh gave up"}) {
		t.Errorf("after a failure, stdout is %q, and the phone gets %q", got.Out, messages)
	}
}

func TestRecipeMakefile(t *testing.T) {
	t.Parallel()
	clitest.NeedTools(t, "make")
	k := newRecipe(t, "exec in a Makefile")
	k.Fake("npm", `test $n -ge 2`)
	k.Fake("docker", `case $1 in compose) echo c0ffee;; inspect) test $n -ge 4 && echo healthy || echo starting;; esac`)
	got := k.Run(0)
	clitest.WantCode(t, got, 0)
	wantCalls(k, "npm", "ci", "ci")
	const compose, inspect = "compose ps -q db", "inspect -f {{.State.Health.Status}} c0ffee"
	wantCalls(k, "docker", compose, inspect, compose, inspect)
	clitest.WantIn(t, "stdout", got.Out, "starting\nhealthy\n")

	k.Fake("npm", "exit 1")
	got = k.Run(0)
	clitest.WantCode(t, got, 2)
	clitest.WantIn(t, "stderr", got.Stderr, "*** [Makefile:6: deps] Error 1")
}
