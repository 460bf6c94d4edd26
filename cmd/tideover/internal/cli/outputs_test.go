//go:build unix

package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/engine/jetstream/natstest"
)

// noisy writes a secret in two pieces, 100 kB, and the secret again at the end.
const noisy = `version: 1
workflows:
  noisy:
    steps:
      - id: talk
        run: [sh, -c, 'echo the first line; printf %s "$S" | head -c 7; sleep 0; printf %s "$S" | tail -c +8; echo; head -c 100000 /dev/zero | tr "\0" "<"; echo; echo "&last $S"; printf "\033[31mred\033[0m \377\n" >&2; exit 3']
        env: {S: '${env:PLANTED_SECRET}'}
        policy: fixed(0s) attempts=2
  asks:
    steps:
      - {id: get, http: {get: '${env:URL}'}, policy: fixed(0s) attempts=1}
  uploads:
    input: {url: {type: string}}
    steps:
      - {id: put, http: {put: '{{ .input.url }}/uplod/${env:PLANTED_SECRET}/a.json?sig=1'}, policy: fixed(0s) attempts=1}
`

const plantedSecret = "hush-PLANTED-0123456789"

// outputOf returns the output of an attempt from the API.
func (s *serverProcess) outputOf(path string) (o control.Output) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.read("/api/v1/runs/"+path)), &o); err != nil {
		s.t.Fatal(err)
	}
	return o
}

func TestOutputOfAFailedStep(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("short and " + plantedSecret))
	}))
	defer upstream.Close()
	dir := shortDir(t)
	at := strings.Replace(upstream.URL, "127.0.0.1", "localhost", 1) // upstream.URL is a secret: a variable has it
	env := []string{"PLANTED_SECRET=" + plantedSecret, "URL=" + upstream.URL, "TIDEOVER_SERVER_ALLOW_HOSTS=" + strings.TrimPrefix(at, "http://")}
	s := serveFile(t, noisy, dir, env...)
	wantCode(t, s.runCommand("run", "noisy", "--wait", "--key", "k"), codeDead)
	wantCode(t, s.runCommand("run", "asks", "--wait", "--key", "h"), codeDead)
	id := s.show("k").ID
	wantOutputs := func(when string) {
		t.Helper()
		o := s.outputOf(id + "/output")
		if len(o.Streams) != 2 || o.Attempt != 2 || *o.Exit != 3 {
			t.Fatalf("%s: %+v", when, o)
		}
		out := o.Streams[0]
		if n := len(out.Head) + len(out.Tail); n != 64<<10 || out.Size != int64(n)+out.Omitted {
			t.Errorf("%s: %d bytes of %d, %d omitted, want 64 KiB", when, n, out.Size, out.Omitted)
		}
		if !strings.HasPrefix(out.Head, "the first line\n***\n<<") || !strings.HasSuffix(out.Tail, "<<\n&last ***\n") {
			t.Errorf("%s: it begins with %q and ends with %q", when, out.Head[:30], out.Tail[len(out.Tail)-30:])
		}
		if o.Streams[1].Head != "\x1b[31mred\x1b[0m \uFFFD\n" {
			t.Errorf("%s: stderr is %q", when, o.Streams[1].Head)
		}
		shown := s.runCommand("show", id, "--output", "--step", "talk", "--attempt", "1")
		wantCode(t, shown, 0)
		for _, want := range []string{"talk, attempt 1", "exit code 3", "\nsh -c 'echo the first line; printf %s \"$S\" |", "\nthe first line\n***\n<<", " bytes omitted …\n<", "&last ***\n", "\nred "} {
			wantIn(t, when+": show --output", shown.out, want)
		}
		if n := strings.Count(shown.out, "<"); n < 65_000 || n > 64<<10 {
			t.Errorf("%s: show --output has %d of the 100000 characters", when, n)
		}
		page := s.read("/runs/" + id)
		wantIn(t, when+": the page of the run", page, "Output: 100")
		wantIn(t, when+": the page of the run", page, "<pre tabindex=\"0\">red ")
		wantIn(t, when+": the page of the run", page, "sh -c &#39;echo the first line;")
		link := "/runs/" + id + "/output?" + url.Values{"attempt": {"1"}, "step": {"talk"}}.Encode()
		wantIn(t, when+": the page of the run", page, strings.ReplaceAll(link, "&", "&amp;"))
		whole := s.read(link)
		wantIn(t, when+": the page of the output", whole, "the first line\n***\n&lt;&lt;")
		wantIn(t, when+": the page of the output", whole, "&amp;last ***")
		found := s.read(link + "&q=" + url.QueryEscape("&LAST"))
		wantIn(t, when+": a search", found, "stdout:4: &amp;last ***")
		wantIn(t, when+": a search", found, ">1 line<")
		text := s.read(strings.Replace(link, "/output?", "/output.txt?", 1))
		wantIn(t, when+": the download", text, "\x1b[31mred\x1b[0m \xff\n")
		for what, text := range map[string]string{"show": shown.out, "page": page, "output": whole, "search": found, "download": text} {
			if strings.Contains(text, "PLANTED") || strings.Contains(text, "\x1b") && what != "download" {
				t.Errorf("%s: %s has the secret or an escape sequence", when, what)
			}
		}
	}
	wantOutputs("at first")
	if o := s.outputOf("h/output"); o.Status != "HTTP/1.1 418 I'm a teapot" || o.Streams[0].Head != "short and ***" {
		t.Errorf("the response: %+v", o)
	}
	wantCode(t, s.runCommand("run", "uploads", "--wait", "--key", "u", "--input", `{"url": "`+at+`"}`), codeDead)
	request := "PUT " + at + "/uplod/***/a.json?…"
	if o := s.outputOf("u/output"); o.Request != request {
		t.Errorf("the request is %q, want %q", o.Request, request)
	}
	wantIn(t, "show", s.runCommand("show", "u").out, `status 418 I'm a teapot (PUT "`+at+`/uplod/***/a.json?…"): short and ***`)
	wantIn(t, "show --output", s.runCommand("show", "u", "--output").out, "\n"+request+"\n")
	upload := s.show("u").ID
	wantIn(t, "the page of the run", s.read("/runs/"+upload), ">"+request+"<")
	wantIn(t, "the page of the output", s.read("/runs/"+upload+"/output?step=put&attempt=1"), ">"+request+"<")
	wantIn(t, "the download", s.read("/runs/"+upload+"/output.txt?step=put&attempt=1"), request+"\nHTTP/1.1 418")
	s.signal(syscall.SIGKILL)
	s.wait()
	wantNoSecretIn(t, filepath.Join(s.data, "outputs"))
	s = serveFile(t, noisy, dir, env...)
	wantOutputs("after kill -9")
	s.signal(syscall.SIGTERM)
	wantCode(t, s.wait(), 0)
}

// wantNoSecretIn checks the contents and the modes of the files in a folder.
func wantNoSecretIn(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has %d files, %v", dir, len(files), err)
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil || strings.Contains(string(text), "PLANTED") {
			t.Errorf("%s has the secret, or %v", f.Name(), err)
		}
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %v, %v", f.Name(), info.Mode(), err)
		}
	}
}

// A member of a cluster fetches the output of an attempt from the member that made it, and says so if
// that member is gone.
func TestOutputsInACluster(t *testing.T) {
	t.Parallel()
	nodes := natstest.Shared(t)
	f := newClusterServers(t, shared+engineSection(nodes, clusterName(t)))
	a, b := f.serve("a"), f.serve("b")
	a.waitForShards(2)
	remote := "" // a run whose attempt b has made
	for range 100 {
		if remote != "" {
			break
		}
		ids := a.startRuns("where", 1)
		a.waitForSuccess(ids)
		var o control.Output
		shown := a.runCommand("show", ids[0], "--output", "--json")
		wantCode(t, shown, 0)
		if err := json.Unmarshal([]byte(shown.out), &o); err != nil {
			t.Fatal(err)
		}
		here := o.Streams[0].Head == "a\n"
		if here != (o.Member == "") || !here && o.Streams[0].Head != "b\n" {
			t.Fatalf("%q is stored by %q", o.Streams[0].Head, o.Member)
		}
		if !here {
			remote = ids[0]
		}
	}
	page := a.read("/runs/" + remote)
	wantIn(t, "the page of the run", page, ">Whole output</a>")
	wantIn(t, "the page of the output", a.read("/runs/"+remote+"/output"), "stored by")
	b.signal(syscall.SIGTERM)
	wantCode(t, b.wait(), 0)
	a.waitForShards(1)
	gone := a.runCommand("show", remote, "--output")
	if gone.code == 0 || !strings.Contains(gone.stderr, "no output of attempt 1 of step") {
		t.Errorf("without the member: %+v", gone)
	}
	a.signal(syscall.SIGTERM)
	wantCode(t, a.wait(), 0)
}

// A file in the place of the folder makes every write fail. No attempt fails with it.
func TestOutputsThatCantBeWritten(t *testing.T) {
	t.Parallel()
	s := serveFile(t, "version: 1\nworkflows:\n  hello:\n    steps:\n      - {id: say, run: [echo, hello]}\n", "")
	folder := filepath.Join(s.data, "outputs")
	wantStored := func(key string) {
		t.Helper()
		wantCode(t, s.runCommand("run", "hello", "--wait", "--key", key), 0)
		wantIn(t, "an output", s.runCommand("show", key, "--output").out, "\nhello\n")
	}
	wantStored("first")
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	write(t, folder, "")
	for _, key := range []string{"second", "third"} {
		wantCode(t, s.runCommand("run", "hello", "--wait", "--key", key), 0)
		lost := s.runCommand("show", key, "--output")
		wantCode(t, lost, codeNoRun)
		wantIn(t, "an output that was not stored", lost.stderr, "it could not be written: ")
		wantIn(t, "the page", s.read("/runs/"+s.show(key).ID), "The output was not kept: ")
	}
	if got := strings.Count(s.out.String(), "outputs of attempts can't be stored"); got != 1 {
		t.Errorf("the problem is logged %d times, want once", got)
	}
	wantIn(t, "the health check", s.read("/healthz"), `"ok":true`)
	wantIn(t, "the health check", s.read("/healthz"), "outputs of attempts can't be stored, 2 are lost")
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	wantStored("fourth")
	s.signal(syscall.SIGTERM)
	wantCode(t, s.wait(), 0)
}

// TestOutputsOfAFlow shows the output of the step that failed, and of an undo.
func TestOutputsOfAFlow(t *testing.T) {
	t.Parallel()
	s := serveFile(t, `
version: 1
workflows:
  deploy:
    steps:
      - id: deploy
        for-each: [web-1, web-2]
        run: [echo, "deploy {{ .item }}"]
        undo: {run: [echo, "back {{ .item }}"]}
      - id: check
        needs: [deploy]
        run: [sh, -c, "echo broken; exit 3"]
        policy: fixed(1ms) attempts=2
`, shortDir(t))
	wantCode(t, s.runCommand("run", "deploy", "--wait", "--key", "k"), codeDead)
	for step, want := range map[string]string{"": "check, attempt 2", "check": "broken", "deploy#1": "deploy web-2", "undo:deploy#1": "back web-2"} {
		args := []string{"show", "k", "--output"}
		if step != "" {
			args = append(args, "--step", step)
		}
		shown := s.runCommand(args...)
		wantCode(t, shown, 0)
		wantIn(t, "the output of "+step, shown.out, want)
	}
	none := s.runCommand("show", "k", "--output", "--step", "undo:deploy#7")
	wantCode(t, none, codeOwn)
	wantIn(t, "an unknown step", none.stderr, `did you mean "undo:deploy#`)
	s.signal(syscall.SIGTERM)
	wantCode(t, s.wait(), 0)
}

// TestOutputOfAnEarlierExecution asks for the output of a step that a retry of the run has executed
// again.
func TestOutputOfAnEarlierExecution(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	s := serveFile(t, `
version: 1
workflows:
  load:
    steps:
      - {id: wait, sleep: 1ms}
      - id: load
        needs: [wait]
        run: [sh, -c, 'if test -e "$0"; then echo complete; else echo incomplete; exit 3; fi', '`+filepath.Join(dir, "ready")+`']
        policy: fixed(1ms) attempts=2
`, dir)
	wantCode(t, s.runCommand("run", "load", "--wait", "--key", "k"), codeDead)
	write(t, filepath.Join(dir, "ready"), "")
	wantCode(t, s.runCommand("retry", "k"), 0)
	s.waitForSuccess([]string{s.show("k").ID})
	var numbers []string
	for _, step := range s.show("k").Steps {
		if step.Name == "load" {
			numbers = append(numbers, strconv.Itoa(step.Number))
		}
	}
	if len(numbers) != 2 {
		t.Fatalf("the executions are %q, want 2", numbers)
	}
	for _, c := range []struct {
		flags []string
		code  int
		want  string
	}{
		{nil, 0, "\ncomplete\n"},
		{[]string{"--step", "load"}, 0, "\ncomplete\n"},
		{[]string{"--step", "load", "--operation", numbers[1]}, 0, "\ncomplete\n"},
		{[]string{"--step", "load", "--operation", numbers[0]}, 0, "load, attempt 2, "},
		{[]string{"--step", "load", "--operation", numbers[0], "--attempt", "1"}, 0, "\nincomplete\n"},
		{[]string{"--step", "load", "--operation", "99"}, codeNoRun, "step load has no operation 99"},
		{[]string{"--step", "load", "--operation", "0"}, codeOwn, "--operation: 0 is not the number of an operation: want 1 or more"},
		{[]string{"--operation", "1"}, codeOwn, "--operation needs --step"},
	} {
		shown := s.runCommand(append([]string{"show", "k", "--output"}, c.flags...)...)
		wantCode(t, shown, c.code)
		wantIn(t, strings.Join(c.flags, " "), shown.out+shown.stderr, c.want)
	}
	wantIn(t, "without --output", s.runCommand("show", "k", "--operation", "1").stderr, "--step, --operation and --attempt need --output")
	s.signal(syscall.SIGTERM)
	wantCode(t, s.wait(), 0)
}
