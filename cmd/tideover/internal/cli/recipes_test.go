//go:build unix

package cli

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
)

// A real `go test` runs on a module with a package that passes and one that fails the first time.
func TestRecipeFlakyTest(t *testing.T) {
	t.Parallel()
	needs(t, "go")
	k := newRecipe(t, "A flaky test in CI")
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	k.env = append(k.env, "GOCACHE="+strings.TrimSpace(string(cache)), "GOFLAGS=-vet=off", "GOWORK=off", "GOTOOLCHAIN=local", "SEEN="+filepath.Join(k.home, "seen"))
	k.write(k.path("go.mod"), "module example.com/shop\n\ngo 1.21\n", 0o600)
	k.write(k.path("steady/steady_test.go"), "package steady\n\nimport \"testing\"\n\nfunc TestIt(t *testing.T) {}\n", 0o600)
	k.write(k.path("flaky/flaky_test.go"), `package flaky

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
	got := k.run(0)
	wantCode(t, got, 0)
	for _, part := range []string{"for no reason", "ok  \texample.com/shop/steady\t(cached)", "ok  \texample.com/shop/flaky"} {
		wantIn(t, "stdout", got.out, part)
	}
	wantIn(t, "stderr", got.stderr, "attempt 2/3 succeeded")
	events, err := os.ReadFile(k.path("flaky.jsonl"))
	if failed := strings.Count(string(events), `"kind":"attempt-failed"`); err != nil || failed != 1 {
		t.Errorf("flaky.jsonl tells of %d failures, want 1: %v\n%s", failed, err, events)
	}

	k.write(k.path("flaky/broken_test.go"), "package flaky\n\nvar x int = \"y\"\n", 0o600)
	if err := os.Remove(k.path("flaky.jsonl")); err != nil {
		t.Fatal(err)
	}
	wantCode(t, k.run(0), 1)
	if lines(k.path("flaky.jsonl")) > 0 {
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
			k.fake("pg_isready", tt.pgIsReady)
			k.write(k.path("server"), "#!/bin/sh\necho served\n", 0o700)
			k.env = append(k.env, "PGHOST=db.example.com")
			got := k.run(0)
			wantCode(t, got, tt.code)
			k.wantCalls("pg_isready", slices.Repeat([]string{"-q -h db.example.com"}, tt.asked)...)
			if n := strings.Count(got.out, "served\n"); n != tt.served {
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
	needs(t, "curl")
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
			k.env = append(k.env, "API_URL="+server.URL)
			got := k.run(0)
			wantCode(t, got, tt.code)
			wantIn(t, "stderr", got.stderr, tt.said)
			times := server.times()
			if len(times) != len(tt.least)+1 {
				t.Fatalf("the server was asked %d times, want %d; stderr %q", len(times), len(tt.least)+1, got.stderr)
			}
			for i, least := range tt.least {
				if d := times[i+1].Sub(times[i]); d < least {
					t.Errorf("request %d came after %v, want at least %v", i+2, d, least)
				}
			}
			if body, _ := os.ReadFile(k.path("prices.json")); tt.code == 0 && string(body) != "status 200\n" {
				t.Errorf("prices.json = %q", body)
			}
		})
	}
}

// sessionOf returns the session with this name; a zero value if it does not exist.
func (k *recipe) sessionOf(name string) (st hostedSession) {
	k.t.Helper()
	got := finish(k.t, k.command("tideover", "sessions", "show", name, "--json"))
	_ = json.Unmarshal([]byte(got.out), &st) // fails if the session does not exist yet
	return st
}

// untilSession waits until the condition holds for a session.
func (k *recipe) untilSession(name string, is func(hostedSession) bool) (st hostedSession) {
	k.t.Helper()
	testwait.Until(k.t, "session "+name, func() bool {
		st = k.sessionOf(name)
		return is(st)
	})
	return st
}

func waits(st hostedSession) bool { return st.State == "waiting" }

// limitedUntil returns the script of an assistant that reports a limit until at in its first call
// and succeeds in its second.
func limitedUntil(at time.Time) string {
	return `echo "Working on it."; test $n -ge 2 || { echo "You've hit your session limit · resets ` + at.Format("3:04pm") + ` (UTC)"; exit 1; }; echo "All done."`
}

const acceptEdits = " --permission-mode acceptEdits"

// wantResumed checks that the assistant was started and resumed with the same id.
func (k *recipe) wantResumed() {
	k.t.Helper()
	calls := k.calls("claude")
	if len(calls) == 0 {
		k.t.Fatal("the assistant was not called")
	}
	_, id, _ := strings.Cut(calls[0], "--session-id ")
	if len(id) != 36 {
		k.t.Errorf("the id is %q", id)
	}
	k.wantCalls("claude", "-p Work through TODO.md. Commit after each item."+acceptEdits+" --session-id "+id, "-p Continue."+acceptEdits+" --resume "+id)
}

func TestRecipeOverNight(t *testing.T) {
	t.Parallel()
	k := newRecipe(t, "An assistant over night")
	reset := time.Now().UTC().Add(2 * time.Hour).Truncate(time.Minute)
	k.fake("claude", limitedUntil(reset))
	watch := k.shell(0)
	var out syncBuffer
	watch.Stdout, watch.Stderr = &out, &out
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	st := k.untilSession("todo", waits)
	if late := st.Next.Sub(reset); late < 90*time.Second || late > 2*time.Minute {
		t.Errorf("waits until %v, want 90s after %v and a little", st.Next, reset)
	}
	if st.Windows != 1 || st.MaxWindows != 4 || st.Spent != 0 || st.Deadline == nil || st.Deadline.Sub(*st.Started) != 14*time.Hour {
		t.Errorf("session is %+v", st)
	}
	seen := k.run(1)
	wantCode(t, seen, 0)
	for _, part := range []string{"todo  waiting  watch at ", "line        You've hit your session limit"} {
		wantIn(t, "sessions show", seen.out, part)
	}
	if err := watch.Wait(); err != nil {
		t.Errorf("watch ended with %v: %s", err, out.String())
	}
	k.wantResumed()
	wantIn(t, "output", out.String(), "All done.")
}

// unit returns the value of a key in the unit docs/tideover.service, with %h expanded.
func (k *recipe) unit(key string) string {
	k.t.Helper()
	m := regexp.MustCompile(`(?m)^` + key + `=(.*)$`).FindStringSubmatch(page(k.t, "tideover.service"))
	if m == nil {
		k.t.Fatalf("the unit has no %s", key)
	}
	return strings.ReplaceAll(m[1], "%h", k.home)
}

func TestRecipeSystemdUnit(t *testing.T) {
	t.Parallel()
	const heading = "A systemd unit"
	if k := newRecipe(t, heading); k.recipe[0].text != page(t, "tideover.service") {
		t.Error("docs/tideover.service is not what docs/recipes.md says")
	}
	t.Run("can be used by systemd", func(t *testing.T) {
		t.Parallel()
		needs(t, "systemd-analyze")
		k := newRecipe(t, heading)
		runtime := filepath.Join(k.home, "run")
		if err := os.MkdirAll(filepath.Join(runtime, "systemd"), 0o700); err != nil {
			t.Fatal(err)
		}
		k.env = append(k.env, "XDG_RUNTIME_DIR="+runtime)
		k.fake("systemctl", "")
		k.fake("loginctl", "")
		got := k.run(0)
		wantCode(t, got, 0)
		if got.stderr != "" {
			t.Errorf("stderr = %q", got.stderr)
		}
		wantIn(t, "stdout", got.out, "config.yaml: valid")
		k.wantCalls("systemctl", "--user daemon-reload", "--user enable --now tideover")
		k.wantCalls("loginctl", "enable-linger")
	})
	t.Run("does what systemd would do", func(t *testing.T) {
		t.Parallel()
		serveAsUnit(t, newRecipe(t, heading))
	})
}

// serveAsUnit runs the commands of the unit in the environment that systemd would give them.
func serveAsUnit(t *testing.T, k *recipe) {
	t.Helper()
	k.fake("claude", `pwd >> "`+k.home+`/folder"; `+limitedUntil(time.Now().UTC().Add(2*time.Hour)))
	if err := os.MkdirAll(k.path("~/src/shop"), 0o700); err != nil {
		t.Fatal(err)
	}
	k.write(k.path("~/.config/tideover/env"), "TIDEOVER_SERVER_LISTEN=127.0.0.1:0\n", 0o600)
	file := strings.TrimPrefix(k.unit("EnvironmentFile"), "-")
	variables, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	start := func() (*exec.Cmd, *syncBuffer) {
		argv := strings.Fields(k.unit("ExecStart"))
		cmd, out := k.command(argv[0], argv[1:]...), new(syncBuffer)
		cmd.Dir, cmd.Env = "/", append([]string{"HOME=" + k.home, k.unit("Environment")}, strings.Fields(string(variables))...)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, out
	}
	end := func(cmd *exec.Cmd, out *syncBuffer) {
		t.Helper()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve ended with %v: %s", err, out.String())
		}
	}
	serve, out := start()
	before := k.untilSession("todo", waits)
	reload := strings.Fields(strings.ReplaceAll(k.unit("ExecReload"), "$MAINPID", fmt.Sprint(serve.Process.Pid)))
	wantCode(t, finish(t, k.command(reload[0], reload[1:]...)), 0)
	testwait.Until(t, "the configuration is loaded again", func() bool { return strings.Contains(out.String(), "configuration loaded") })
	end(serve, out)

	serve, out = start()
	after := k.untilSession("todo", waits)
	if after.In != "serve" || !after.Next.Equal(*before.Next) || after.Windows != 1 || after.MaxWindows != 4 {
		t.Errorf("before %+v\n after %+v", before, after)
	}
	wantCode(t, finish(t, k.command("tideover", "sessions", "wake", "todo")), 0)
	k.untilSession("todo", func(st hostedSession) bool { return st.State == "completed" })
	end(serve, out)
	k.wantResumed()
	if folder, _ := os.ReadFile(filepath.Join(k.home, "folder")); string(folder) != strings.Repeat(k.path("~/src/shop")+"\n", 2) {
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
	k.env = append(k.env, "NTFY_URL="+ntfy.URL+"/9yCk3vTq")
	k.write(k.path("backup.sh"), "#!/bin/sh\necho 'disk is full' >&2\nexit 7\n", 0o700)
	got := k.run(0)
	wantCode(t, got, 7)
	wantIn(t, "stdout", got.out, "sent by phone (ntfy)")
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 3 || told[1] != told[2] {
		t.Fatalf("the phone got %q", told)
	}
	wantIn(t, "test", told[0], `POST /9yCk3vTq priority=high title="tideover: a test of phone"`)
	wantIn(t, "message", told[2], `POST /9yCk3vTq priority=high title="backup.sh gave up" 2 attempts in `)
	wantIn(t, "message", told[2], "exited with 7")
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
	k.write(k.path("~/.config/tideover/ntfy-url"), ntfy.URL+"/9yCk3vTq\n", 0o600)
	k.write(k.path("~/tideover.yaml"), "version: 1\n", 0o600) // is not used, because of -c
	text, err := os.ReadFile(k.path("crontab"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\d+ \d+ \* \* \* (.+)$`).FindStringSubmatch(string(text))
	if line == nil || strings.Contains(line[1], "%") {
		t.Fatalf("the crontab has no line that cron runs unchanged: %s", text)
	}
	start := regexp.MustCompile("begin `backup.sh`\\s+with `([^`]+)`").FindStringSubmatch(page(t, "recipes.md"))
	if start == nil {
		t.Fatal("the recipe does not say how backup.sh begins")
	}
	job := func(script string) (outcome, []string) {
		t.Helper()
		k.write(k.path("~/backup.sh"), "#!/bin/sh\n"+start[1]+"\necho a line\n"+script+"\n", 0o700)
		cmd := k.command("/bin/sh", "-c", line[1])
		cmd.Dir = k.home
		cmd.Env = []string{"HOME=" + k.home, "PATH=/usr/bin:/bin", "SHELL=/bin/sh", "LOGNAME=tester", "NO_PROXY=127.0.0.1"}
		got := finish(t, cmd)
		mu.Lock()
		defer mu.Unlock()
		return got, slices.Clone(sent)
	}

	got, messages := job(`test "$TIDEOVER_ATTEMPT" = 2`)
	wantCode(t, got, 0)
	if got.out+got.stderr != "" || len(messages) > 0 || lines(k.path("~/backup.log")) != 2 {
		t.Errorf("after a success, cron mails %q, the phone gets %q, and the log has %d lines", got.out+got.stderr, messages, lines(k.path("~/backup.log")))
	}

	got, messages = job("exit 7")
	wantCode(t, got, 7)
	if got.out != "" || !slices.Equal(messages, []string{"/9yCk3vTq backup.sh gave up"}) {
		t.Errorf("after a failure, stdout is %q, and the phone gets %q", got.out, messages)
	}
}

func TestRecipeMakefile(t *testing.T) {
	t.Parallel()
	needs(t, "make")
	k := newRecipe(t, "exec in a Makefile")
	k.fake("npm", `test $n -ge 2`)
	k.fake("docker", `case $1 in compose) echo c0ffee;; inspect) test $n -ge 4 && echo healthy || echo starting;; esac`)
	got := k.run(0)
	wantCode(t, got, 0)
	k.wantCalls("npm", "ci", "ci")
	const compose, inspect = "compose ps -q db", "inspect -f {{.State.Health.Status}} c0ffee"
	k.wantCalls("docker", compose, inspect, compose, inspect)
	wantIn(t, "stdout", got.out, "starting\nhealthy\n")

	k.fake("npm", "exit 1")
	got = k.run(0)
	wantCode(t, got, 2)
	wantIn(t, "stderr", got.stderr, "*** [Makefile:6: deps] Error 1")
}
