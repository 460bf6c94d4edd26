package api

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/output"
	"github.com/tideover/tideover/internal/testwait"
)

// keepOutput stores an output as the handler of a command does.
func (f *fixture) keepOutput(run, step string, number int, stdout, stderr string) {
	f.t.Helper()
	out, errs := &output.Capture{Limit: 64 << 10}, &output.Capture{Limit: 64 << 10}
	_, _ = out.Write([]byte(stdout))
	_, _ = errs.Write([]byte(stderr))
	if err := f.outputs.Append(&output.Record{
		Attempt: output.Attempt{Run: run, Step: step, Number: number}, Ended: time.Now(), Exit: new(3),
		Streams: []output.Stream{out.Stream("stdout"), errs.Stream("stderr")},
	}); err != nil {
		f.t.Fatal(err)
	}
}

func TestOutputOfAnAttempt(t *testing.T) {
	t.Parallel()
	f := serve(t)
	id := f.start("never", `{"fail": 9, "text": "no"}`)
	f.over(id)
	long := "first\n" + strings.Repeat("0123456789", 10_000) + "\nlast\n"
	f.keepOutput(id, "do", 1, "one", "")
	f.keepOutput(id, "do", 2, long, "PLANTED <b>\x1b[31m\xff")
	f.redactor.Add("PLANTED") // it became known after the output was stored
	path := Prefix + "runs/" + id + "/output"
	var o admin.Output
	a := f.ask(false, "GET", path, "")
	if err := json.Unmarshal([]byte(a.text), &o); err != nil || a.status != http.StatusOK {
		t.Fatalf("%d %.200s", a.status, a.text)
	}
	out, errs := o.Streams[0], o.Streams[1]
	switch {
	case o.Run != id || o.Step != "do" || o.Attempt != 2 || *o.Exit != 3:
		t.Errorf("it is of %+v, want the last attempt", o)
	case out.Size != int64(len(long)) || len(out.Head)+len(out.Tail) != 64<<10 || out.Omitted != int64(len(long)-64<<10):
		t.Errorf("%d of %d bytes, %d omitted", len(out.Head)+len(out.Tail), out.Size, out.Omitted)
	case !strings.HasPrefix(long, out.Head) || !strings.HasSuffix(long, out.Tail):
		t.Error("it is not the beginning and the end")
	case errs.Head != "*** <b>\x1b[31m\uFFFD":
		t.Errorf("stderr is %q", errs.Head)
	}
	first, err := f.client().Output(t.Context(), admin.OutputQuery{Run: id, Step: "do", Attempt: 1})
	if err != nil || first.Streams[0].Head != "one" {
		t.Errorf("the first attempt: %+v, %v", first, err)
	}
	text := f.ask(true, "GET", path+"?download=true", "", "Authorization", "Bearer "+token+"-of-wall")
	if text.header.Get("Content-Type") != "text/plain; charset=utf-8" || text.header.Get("X-Content-Type-Options") != "nosniff" ||
		text.header.Get("Content-Disposition") != `attachment; filename="`+id+`-do-2.txt"` {
		t.Errorf("headers of the text: %v", text.header)
	}
	if !strings.Contains(text.text, " bytes omitted ---\n") || !strings.HasSuffix(text.text, "*** <b>\x1b[31m\xff\n") {
		t.Errorf("the text ends with %q", text.text[len(text.text)-60:])
	}
	part := f.ask(false, "GET", path+"?download=true", "", "Range", "bytes=-10")
	if part.status != http.StatusPartialContent || part.text != text.text[len(text.text)-10:] {
		t.Errorf("a range: %d %q", part.status, part.text)
	}
}

func TestOutputThatIsNotStored(t *testing.T) {
	t.Parallel()
	f := serve(t)
	dead := f.start("never", `{"fail": 9, "text": "no"}`)
	f.over(dead)
	running := f.start("gate", `{}`)
	testwait.Until(t, "the run is running", func() bool {
		i, err := f.engine.Get(t.Context(), running)
		return err == nil && i.State == "running"
	})
	lost := filepath.Join(f.dir, "outputs")
	if err := os.WriteFile(lost, nil, 0o600); err != nil { // it can't become a folder
		t.Fatal(err)
	}
	if f.outputs.Append(&output.Record{Attempt: output.Attempt{Run: dead, Step: "do", Number: 1}, Ended: time.Now()}) == nil {
		t.Error("it was stored")
	}
	health := f.ask(false, "GET", Prefix+"healthz", "")
	if health.status != http.StatusOK || !strings.Contains(health.text, "outputs of attempts can't be stored, 1 are lost") {
		t.Errorf("health: %d %s", health.status, health.text)
	}
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	f.keepOutput("another", "do", 1, "", "")
	if health := f.ask(false, "GET", Prefix+"healthz", ""); strings.Contains(health.text, "outputs") {
		t.Errorf("health after a write: %s", health.text)
	}
	for query, want := range map[string]string{
		dead + "/output":                    "no output of attempt 2 of step do is stored; it was removed because of",
		dead + "/output?attempt=1":          "no output of attempt 1 of step do is stored; it could not be written",
		dead + "/output?step=no":            `step: workflow "never" has no step "no"`,
		dead + "/output?attempt=0":          `attempt: "0" is not a number`,
		dead + "/output?download=perhaps":   "download: ",
		running + "/output":                 "step wait has no attempt that has ended",
		running + "/output?attempt=1":       "attempt 1 of step wait is running; its output is stored when it ends",
		"01k9v3q0h2f8a5b6c7d8e9f0g1/output": "no such run",
	} {
		a := f.ask(false, "GET", Prefix+"runs/"+query, "")
		if p := a.problem(t); !strings.Contains(p.Error(), want) || a.status != http.StatusNotFound && a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %v, want %s", query, a.status, p.Error(), want)
		}
	}
	close(f.gate)
	f.over(running)
}
