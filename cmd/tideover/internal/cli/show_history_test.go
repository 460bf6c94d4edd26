//go:build unix

package cli

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// orderFlow returns a workflow that calls an operation, sleeps, and calls another one.
func orderFlow(t *testing.T, first string, sleep time.Duration, executed *int) *engine.Workflow {
	t.Helper()
	do := func(context.Context) (string, error) { *executed++; return "done", nil }
	return engine.MustFlow("order", func(f *engine.Flow, _ int) (string, error) {
		if _, err := engine.Do(f, first, do); err != nil {
			return "", err
		}
		if err := engine.Sleep(f, "cool-down", sleep); err != nil {
			return "", err
		}
		return engine.Do(f, "ship", do)
	})
}

// A Go program leaves two runs in a folder. A server with that folder prints their histories, and a
// test of the next version of the program finds out what a deploy would do with the runs.
func TestShowHistory(t *testing.T) {
	t.Parallel()
	dir := clitest.ShortDir(t)
	var ids []string
	executed := 0
	for _, sleep := range []time.Duration{0, time.Hour} {
		ids = append(ids, leaveRun(t, dir, orderFlow(t, "price", sleep, &executed)))
	}
	s := clitest.Serve(t, "version: 1\nworkflows:\n  hello: {steps: [{id: a, run: [echo]}]}\n", dir)
	cmd, _ := clitest.Command(t, "show", "--history", "--server", "unix:"+filepath.Join(s.Data, "tideover.sock"), ids[0], ids[1])
	o := clitest.Finish(t, cmd)
	clitest.WantCode(t, o, 0)
	if n := strings.Count(o.Out, "\n"); n != 2 {
		t.Errorf("%d lines: %s", n, o.Out)
	}
	file := filepath.Join(t.TempDir(), "order.json")
	clitest.WriteFile(t, file, o.Out)
	executed = 0
	histories := enginetest.Histories(t, file)
	got := enginetest.Replay(t, histories, orderFlow(t, "price", time.Hour, &executed))
	if len(got) != 2 || got[0].Run != ids[0] || got[0].Next != nil || got[1].Run != ids[1] || !slices.Equal(got[1].Next, []string{"ship"}) {
		t.Errorf("the same code: %+v", got)
	}
	for _, h := range histories {
		got, err := h.Replay(t, orderFlow(t, "quote", time.Hour, &executed))
		if err != nil || !strings.Contains(got.Parked, `"price" that the function did not call before the new operation "quote"`) {
			t.Errorf("other code: %+v, %v", got, err)
		}
	}
	if executed != 0 {
		t.Errorf("%d operations were executed", executed)
	}

	clitest.WantCode(t, s.RunCommand("run", "hello", "--key", "k", "--wait"), 0)
	of := enginetest.History{Name: "hello", Data: []byte(s.RunCommand("show", "k", "--history").Out)}
	if _, err := of.Replay(t, orderFlow(t, "price", time.Hour, &executed)); err == nil || !strings.Contains(err.Error(), "hello") {
		t.Errorf("a workflow of the file: %v", err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"show", "--history", ids[0], "nothing"}, CodeUnknown, "nothing"},
		{[]string{"show", "--history"}, CodeOwn, "no run given"},
		{[]string{"show", ids[0], ids[1]}, CodeOwn, "too many arguments"},
		{[]string{"show", "--history", "--output", ids[0]}, CodeOwn, "--output and --history: give one of them"},
	} {
		o := s.RunCommand(c.args...)
		clitest.WantCode(t, o, c.code)
		clitest.WantIn(t, strings.Join(c.args, " "), o.Stderr, c.want)
	}
}

// leaveRun starts a run in the data folder of a server that does not run, and returns when the run
// has ended or sleeps.
func leaveRun(t *testing.T, dir string, w *engine.Workflow) string {
	t.Helper()
	e, err := engine.Open(t.Context(), engine.Config{Dir: filepath.Join(dir, "data"), Workflows: []*engine.Workflow{w}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	run, err := e.Start(t.Context(), w, 1)
	if err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the run has ended or sleeps", func() bool {
		i, err := e.Get(t.Context(), run.ID)
		return err == nil && (i.Finished() || i.State == engine.StateWaiting)
	})
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return run.ID
}
