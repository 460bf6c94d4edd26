//go:build unix

package serve_test

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

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine/jetstream/natstest"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
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
func outputOf(s *clitest.Server, path string) (o admin.Output) {
	s.T.Helper()
	if err := json.Unmarshal([]byte(s.Read("/api/v1/runs/"+path)), &o); err != nil {
		s.T.Fatal(err)
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
	dir := clitest.ShortDir(t)
	at := strings.Replace(upstream.URL, "127.0.0.1", "localhost", 1) // upstream.URL is a secret: a variable has it
	env := []string{"PLANTED_SECRET=" + plantedSecret, "URL=" + upstream.URL, "TIDEOVER_SERVER_ALLOW_HOSTS=" + strings.TrimPrefix(at, "http://")}
	s := clitest.Serve(t, noisy, dir, env...)
	clitest.WantCode(t, s.RunCommand("run", "noisy", "--wait", "--key", "k"), cli.CodeFailed)
	clitest.WantCode(t, s.RunCommand("run", "asks", "--wait", "--key", "h"), cli.CodeFailed)
	id := s.Show("k").ID
	wantOutputs := func(when string) {
		t.Helper()
		o := outputOf(s, id+"/output")
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
		shown := s.RunCommand("show", id, "--output", "--step", "talk", "--attempt", "1")
		clitest.WantCode(t, shown, 0)
		for _, want := range []string{"talk, attempt 1", "exit code 3", "\nsh -c 'echo the first line; printf %s \"$S\" |", "\nthe first line\n***\n<<", " bytes omitted …\n<", "&last ***\n", "\nred "} {
			clitest.WantIn(t, when+": show --output", shown.Out, want)
		}
		if n := strings.Count(shown.Out, "<"); n < 65_000 || n > 64<<10 {
			t.Errorf("%s: show --output has %d of the 100000 characters", when, n)
		}
		page := s.Read("/runs/" + id)
		clitest.WantIn(t, when+": the page of the run", page, "Output: 100")
		clitest.WantIn(t, when+": the page of the run", page, "<pre tabindex=\"0\">red ")
		clitest.WantIn(t, when+": the page of the run", page, "sh -c &#39;echo the first line;")
		link := "/runs/" + id + "/output?" + url.Values{"attempt": {"1"}, "step": {"talk"}}.Encode()
		clitest.WantIn(t, when+": the page of the run", page, strings.ReplaceAll(link, "&", "&amp;"))
		whole := s.Read(link)
		clitest.WantIn(t, when+": the page of the output", whole, "the first line\n***\n&lt;&lt;")
		clitest.WantIn(t, when+": the page of the output", whole, "&amp;last ***")
		found := s.Read(link + "&q=" + url.QueryEscape("&LAST"))
		clitest.WantIn(t, when+": a search", found, "stdout:4: &amp;last ***")
		clitest.WantIn(t, when+": a search", found, ">1 line<")
		text := s.Read(strings.Replace(link, "/output?", "/output.txt?", 1))
		clitest.WantIn(t, when+": the download", text, "\x1b[31mred\x1b[0m \xff\n")
		for what, text := range map[string]string{"show": shown.Out, "page": page, "output": whole, "search": found, "download": text} {
			if strings.Contains(text, "PLANTED") || strings.Contains(text, "\x1b") && what != "download" {
				t.Errorf("%s: %s has the secret or an escape sequence", when, what)
			}
		}
	}
	wantOutputs("at first")
	if o := outputOf(s, "h/output"); o.Status != "HTTP/1.1 418 I'm a teapot" || o.Streams[0].Head != "short and ***" {
		t.Errorf("the response: %+v", o)
	}
	clitest.WantCode(t, s.RunCommand("run", "uploads", "--wait", "--key", "u", "--input", `{"url": "`+at+`"}`), cli.CodeFailed)
	request := "PUT " + at + "/uplod/***/a.json?…"
	if o := outputOf(s, "u/output"); o.Request != request {
		t.Errorf("the request is %q, want %q", o.Request, request)
	}
	clitest.WantIn(t, "show", s.RunCommand("show", "u").Out, `status 418 I'm a teapot (PUT "`+at+`/uplod/***/a.json?…"): short and ***`)
	clitest.WantIn(t, "show --output", s.RunCommand("show", "u", "--output").Out, "\n"+request+"\n")
	upload := s.Show("u").ID
	clitest.WantIn(t, "the page of the run", s.Read("/runs/"+upload), ">"+request+"<")
	clitest.WantIn(t, "the page of the output", s.Read("/runs/"+upload+"/output?step=put&attempt=1"), ">"+request+"<")
	clitest.WantIn(t, "the download", s.Read("/runs/"+upload+"/output.txt?step=put&attempt=1"), request+"\nHTTP/1.1 418")
	s.Signal(syscall.SIGKILL)
	s.End()
	wantNoSecretIn(t, filepath.Join(s.Data, "outputs"))
	s = clitest.Serve(t, noisy, dir, env...)
	wantOutputs("after kill -9")
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
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
	f := clitest.NewCluster(t, clitest.Shared+clitest.EngineSection(nodes, clitest.ClusterName(t)))
	a, b := f.Serve("a"), f.Serve("b")
	a.WaitForShards(2)
	remote := "" // a run whose attempt b has made
	for range 100 {
		if remote != "" {
			break
		}
		ids := a.StartRuns("where", 1)
		a.WaitForSuccess(ids)
		var o admin.Output
		shown := a.RunCommand("show", ids[0], "--output", "--json")
		clitest.WantCode(t, shown, 0)
		if err := json.Unmarshal([]byte(shown.Out), &o); err != nil {
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
	page := a.Read("/runs/" + remote)
	clitest.WantIn(t, "the page of the run", page, ">Whole output</a>")
	clitest.WantIn(t, "the page of the output", a.Read("/runs/"+remote+"/output"), "stored by")
	b.Signal(syscall.SIGTERM)
	clitest.WantCode(t, b.End(), 0)
	a.WaitForShards(1)
	gone := a.RunCommand("show", remote, "--output")
	if gone.Code == 0 || !strings.Contains(gone.Stderr, "no output of attempt 1 of step") {
		t.Errorf("without the member: %+v", gone)
	}
	a.Signal(syscall.SIGTERM)
	clitest.WantCode(t, a.End(), 0)
}

// A file in the place of the folder makes every write fail. No attempt fails with it.
func TestOutputsThatCantBeWritten(t *testing.T) {
	t.Parallel()
	s := clitest.Serve(t, "version: 1\nworkflows:\n  hello:\n    steps:\n      - {id: say, run: [echo, hello]}\n", "")
	folder := filepath.Join(s.Data, "outputs")
	wantStored := func(key string) {
		t.Helper()
		clitest.WantCode(t, s.RunCommand("run", "hello", "--wait", "--key", key), 0)
		clitest.WantIn(t, "an output", s.RunCommand("show", key, "--output").Out, "\nhello\n")
	}
	wantStored("first")
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	clitest.WriteFile(t, folder, "")
	for _, key := range []string{"second", "third"} {
		clitest.WantCode(t, s.RunCommand("run", "hello", "--wait", "--key", key), 0)
		lost := s.RunCommand("show", key, "--output")
		clitest.WantCode(t, lost, cli.CodeUnknown)
		clitest.WantIn(t, "an output that was not stored", lost.Stderr, "it could not be written: ")
		clitest.WantIn(t, "the page", s.Read("/runs/"+s.Show(key).ID), "The output was not kept: ")
	}
	if got := strings.Count(s.Log.String(), "outputs of attempts can't be stored"); got != 1 {
		t.Errorf("the problem is logged %d times, want once", got)
	}
	clitest.WantIn(t, "the health check", s.Read("/healthz"), `"ok":true`)
	clitest.WantIn(t, "the health check", s.Read("/healthz"), "outputs of attempts can't be stored, 2 are lost")
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	wantStored("fourth")
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
}

// TestOutputsOfAFlow shows the output of the step that failed, and of an undo.
func TestOutputsOfAFlow(t *testing.T) {
	t.Parallel()
	s := clitest.Serve(t, `
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
`, clitest.ShortDir(t))
	clitest.WantCode(t, s.RunCommand("run", "deploy", "--wait", "--key", "k"), cli.CodeFailed)
	for step, want := range map[string]string{"": "check, attempt 2", "check": "broken", "deploy#1": "deploy web-2", "undo:deploy#1": "back web-2"} {
		args := []string{"show", "k", "--output"}
		if step != "" {
			args = append(args, "--step", step)
		}
		shown := s.RunCommand(args...)
		clitest.WantCode(t, shown, 0)
		clitest.WantIn(t, "the output of "+step, shown.Out, want)
	}
	none := s.RunCommand("show", "k", "--output", "--step", "undo:deploy#7")
	clitest.WantCode(t, none, cli.CodeOwn)
	clitest.WantIn(t, "an unknown step", none.Stderr, `did you mean "undo:deploy#`)
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
}

// TestOutputOfAnEarlierExecution asks for the output of a step that a retry of the run has executed
// again.
func TestOutputOfAnEarlierExecution(t *testing.T) {
	t.Parallel()
	dir := clitest.ShortDir(t)
	s := clitest.Serve(t, `
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
	clitest.WantCode(t, s.RunCommand("run", "load", "--wait", "--key", "k"), cli.CodeFailed)
	clitest.WriteFile(t, filepath.Join(dir, "ready"), "")
	clitest.WantCode(t, s.RunCommand("retry", "k"), 0)
	s.WaitForSuccess([]string{s.Show("k").ID})
	var numbers []string
	for _, step := range s.Show("k").Steps {
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
		{[]string{"--step", "load", "--operation", "99"}, cli.CodeUnknown, "step load has no operation 99"},
		{[]string{"--step", "load", "--operation", "0"}, cli.CodeOwn, "--operation: 0 is not the number of an operation: want 1 or more"},
		{[]string{"--operation", "1"}, cli.CodeOwn, "--operation needs --step"},
	} {
		shown := s.RunCommand(append([]string{"show", "k", "--output"}, c.flags...)...)
		clitest.WantCode(t, shown, c.code)
		clitest.WantIn(t, strings.Join(c.flags, " "), shown.Out+shown.Stderr, c.want)
	}
	clitest.WantIn(t, "without --output", s.RunCommand("show", "k", "--operation", "1").Stderr, "--step, --operation and --attempt need --output")
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
}
