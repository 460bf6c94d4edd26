//go:build unix

package serve_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// A server shows the runs in a copy of the folder of a program that has stopped, and the folder stays as it is.
func TestRunsOfAStoppedProgram(t *testing.T) {
	t.Parallel()
	order, err := engine.NewWorkflow("order", engine.Step("charge", func(context.Context, string) (string, error) {
		return "", retry.Permanent(errors.New("card declined"))
	}))
	if err != nil {
		t.Fatal(err)
	}
	dir := clitest.ShortDir(t)
	data := filepath.Join(dir, "program")
	open := func() *engine.Engine {
		e, err := engine.Open(t.Context(), engine.Config{Dir: data, Durability: engine.OS, Workflows: []*engine.Workflow{order}})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := open()
	if err := e.SetSchedules(t.Context(), []engine.Schedule{{Name: "nightly", Workflow: "order", Cron: "0 3 * * *", Input: []byte(`"x"`)}}); err != nil {
		t.Fatal(err)
	}
	run, err := e.Start(t.Context(), order, "4711", engine.Key("order-4711"))
	if err == nil {
		_, err = run.Wait(t.Context())
	}
	if err = errors.Join(err, e.Close(context.Background())); err != nil {
		t.Fatal(err)
	}

	look := filepath.Join(dir, "look")
	if err := os.CopyFS(filepath.Join(look, "data"), os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	s := clitest.BeginServe(t, "version: 1\n", look)
	s.AwaitReady()
	clitest.WantIn(t, "show", s.RunCommand("show", "order-4711").Out, "card declined")
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)

	e = open()
	defer e.Close(context.Background())
	schedules, err := e.Schedules(t.Context())
	if err != nil || len(schedules) != 1 {
		t.Errorf("the program has the schedules %+v, %v", schedules, err)
	}
}
