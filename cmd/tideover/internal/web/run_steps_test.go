package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/browsertest"
	"github.com/tideover/tideover/cmd/tideover/internal/output"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/pages"
)

// stepsSite is a test site with a workflow that runs as code and declares its steps, as those of the
// file do.
type stepsSite struct {
	*flowSite
	release *engine.Workflow
	works   atomic.Bool // the step smoke-test succeeds
	store   *output.Store
}

func newStepsSite(t *testing.T) *stepsSite {
	t.Helper()
	s := &stepsSite{flowSite: &flowSite{testSite: &testSite{T: t}, held: map[string]chan struct{}{}}}
	s.store = output.New(output.Config{Dir: filepath.Join(t.TempDir(), "outputs"), Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = s.store.Close() })
	var err error
	s.release, err = engine.NewWorkflow("release", engine.CallFunction("steps", nil),
		engine.Operation("build", "run"), engine.Operation("scan", "run", engine.After("build")),
		engine.Operation("deploy", "http", engine.After("build")), engine.Operation("smoke-test", "run", engine.After("deploy", "scan")),
		engine.Operation("approval", "approve", engine.After("smoke-test")), engine.Operation("paid", "wait-for"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(t.Context(), engine.Config{
		Dir: t.TempDir(), Durability: engine.OS, Workflows: []*engine.Workflow{s.release},
		Functions: map[string]engine.FlowFunc{"steps": s.steps},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.serve(e, withOutputs(s.store))
	return s
}

// attempt stores the output of an attempt.
func (s *stepsSite) attempt(ctx context.Context, text string) (json.RawMessage, error) {
	task, _ := engine.TaskOf(ctx)
	c := &output.Capture{Limit: 64 << 10}
	_, _ = c.Write([]byte(text))
	return json.RawMessage(`{"stdout":"ok"}`), s.store.Append(&output.Record{
		Attempt: output.Attempt{Run: task.Run, Step: task.Step, Operation: task.Operation, Number: task.Total}, Ended: time.Now(),
		Exit: new(0), Command: "make 'the build'", Streams: []output.Stream{c.Stream("stdout")},
	})
}

// steps is the function of the workflow.
func (s *stepsSite) steps(f *engine.Flow, _ json.RawMessage) ([]byte, error) {
	undo := func(ctx context.Context, _ *json.RawMessage) error {
		_, err := s.attempt(ctx, "removed the build\n")
		return err
	}
	build := func(ctx context.Context) (json.RawMessage, error) { return s.attempt(ctx, "compiled 12 packages\n") }
	if _, err := engine.DoUndo(f, "build", build, undo); err != nil {
		return nil, err
	}
	if err := engine.Skip(f, "scan"); err != nil {
		return nil, err
	}
	hosts := []string{"berlin", "rome", "oslo"}
	if _, err := engine.Map(f, "deploy", hosts, func(ctx context.Context, host string) (json.RawMessage, error) {
		return s.attempt(ctx, "deployed to "+host+"\n")
	}, engine.Labels(func(i int) string { return hosts[i] })); err != nil {
		return nil, err
	}
	if _, err := engine.Do(f, "smoke-test", func(ctx context.Context) (json.RawMessage, error) {
		task, _ := engine.TaskOf(ctx)
		out, err := s.attempt(ctx, fmt.Sprintf("smoke test, attempt %d, works: %v\n", task.Total, s.works.Load()))
		if !s.works.Load() {
			err = errors.New("exit code 1: no answer on port 443")
		}
		return out, err
	}, engine.Policy("fixed(1ms) attempts=2")); err != nil {
		return nil, err
	}
	_, err := engine.Ask(f, "approval", engine.Question{Text: "Release it?"}, engine.Within(24*time.Hour))
	return nil, err
}

func (s *stepsSite) start() string {
	s.Helper()
	run, err := s.e.Start(s.Context(), s.release, nil)
	if err != nil {
		s.Fatal(err)
	}
	return run.ID
}

// graphOf returns the states of the nodes of the graph of a page, and what is below their names.
func graphOf(page string) string {
	var list []string
	for _, m := range regexp.MustCompile(`class="node ([a-z-]*)" href="(#[^"]+)"><title>([^<]*)</title>.*?</text><text[^>]*>([^<]*)`).FindAllStringSubmatch(page, -1) {
		if m[2] != "#operations" && !strings.Contains(page, `id="`+m[2][1:]+`"`) {
			m[2] = "nowhere: " + m[2]
			m[4] += ", leads " + m[2]
		}
		list = append(list, m[3]+" = "+m[1]+" "+m[4])
	}
	return strings.Join(list, "\n")
}

func TestRunPageOfStepsThatRunAsCode(t *testing.T) {
	t.Parallel()
	s := newStepsSite(t)
	id := s.start()
	s.until(id, "dead")
	page := s.page(pages.RunURL(id))
	const dead = `build: undone = undone ↶ undone
scan: skipped = skipped ↷ skipped
deploy: succeeded, 3 items: 3 succeeded = succeeded ✓ 3 of 3
smoke-test: failed = failed ✕ failed
approval: not begun = not-begun ◌ not begun
paid: not begun = not-begun ◌ not begun`
	if got := graphOf(page); got != dead {
		t.Errorf("the graph is\n%s\nwant\n%s", got, dead)
	}
	s.expect(page, "<h2>Steps</h2>", `<code class="text">make &#39;the build&#39;</code>`, "6 steps: 1 succeeded, 1 skipped, 1 failed, 1 undone, 2 not begun",
		"compiled 12 packages", "removed the build", "deployed to rome", "rome</span>", "smoke test, attempt 1, works: false", "smoke test, attempt 2, works: false",
		"http for-each", "attempt=2&amp;operation=", `<td role="cell" data-label="State"><span class="state undone">`)
	for _, word := range []string{"Function", "suspended", ">do<", ">map<", "blocked", "operations:"} {
		if strings.Contains(page, word) {
			t.Errorf("the page has the word %s", word)
		}
	}
	for _, link := range regexp.MustCompile(`href="(/runs/[^"]+/output\?[^"]+)"`).FindAllStringSubmatch(page, -1) {
		s.expect(s.page(strings.ReplaceAll(link[1], "&amp;", "&")), "Output of", "exit code 0")
	}
	s.works.Store(true)
	if err := s.e.Retry(t.Context(), id, "tester"); err != nil {
		t.Fatal(err)
	}
	s.until(id, "waiting")
	page = s.page(pages.RunURL(id))
	const again = `build: succeeded = succeeded ✓ succeeded
scan: skipped = skipped ↷ skipped
deploy: succeeded, 3 items: 3 succeeded = succeeded ✓ 3 of 3
smoke-test: succeeded = succeeded ✓ succeeded
approval: waiting = waiting ◐ waiting
paid: not begun = not-begun ◌ not begun`
	if got := graphOf(page); got != again {
		t.Errorf("after the retry the graph is\n%s\nwant\n%s", got, again)
	}
	s.expect(page, "works: false", "works: true", "<title>question until ", "<strong>asks</strong> <span class=\"text\">Release it?</span>")
	if err := s.e.Cancel(t.Context(), id, "tester"); err != nil {
		t.Fatal(err)
	}
	s.until(id, "canceled")
	page = s.page(pages.RunURL(id))
	const canceled = `build: undone = undone ↶ undone
scan: skipped = skipped ↷ skipped
deploy: succeeded, 3 items: 3 succeeded = succeeded ✓ 3 of 3
smoke-test: succeeded = succeeded ✓ succeeded
approval: canceled = canceled ⊘ canceled
paid: not begun = not-begun ◌ not begun`
	if got := graphOf(page); got != canceled {
		t.Errorf("after the cancellation the graph is\n%s\nwant\n%s", got, canceled)
	}
	s.expect(page, "<title>question until ", "<span class=\"text\">approval</span> <strong>canceled</strong>", "<strong>run canceled</strong>")
}

func TestStepsThatRunAsCodeInABrowser(t *testing.T) {
	t.Parallel()
	s := newStepsSite(t)
	x := &tab{s.testSite, browsertest.Open(t)}
	dir := os.Getenv("TIDEOVER_PICTURES")
	id := s.start()
	s.until(id, "dead")
	x.live(pages.RunURL(id))
	x.seen("#graph-section", "not begun")
	x.click(".ops details.tries summary")
	x.click(".ops details.tries details.output summary")
	x.seen(".ops details.tries details.output[open]", "smoke test, attempt 1")
	x.looksRight(dir, "steps")
	s.works.Store(true)
	if err := s.e.Retry(t.Context(), id, "tester"); err != nil {
		t.Fatal(err)
	}
	x.seen("#graph-section", "◐ waiting")
	x.looksRight(dir, "steps-waiting")
	x.quiet()
}
