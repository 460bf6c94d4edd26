package engine_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/testfile"
)

// goldenFolder has runs in the middle of their work: flows that sleep, wait for signals, for a person
// and for children, that undo their operations, and that are paused. The version that had 4 as its
// newest format wrote it. The flag -update writes it again only if it does not exist.
var goldenFolder = filepath.Join("testdata", "format4")

// middleWorkflows returns the workflows of goldenFolder. They are those of TestStoredBytesStayTheSame.
func middleWorkflows() []*engine.Workflow {
	return slices.Concat(goldenFlows(), goldenSignals(), goldenChildren(), goldenUndos(), goldenPauses())
}

func openMiddle(t *testing.T, dir string) *goldenEngine {
	t.Helper()
	e := &goldenEngine{t: t, workflows: middleWorkflows()}
	cfg := engine.Config{Dir: dir, Durability: engine.OS, Workflows: e.workflows, Logger: slog.New(slog.DiscardHandler)}
	engine.ForVirtualTime(&cfg)
	var err error
	if e.Engine, err = engine.Open(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return e
}

func TestAFolderInTheMiddleOfItsWorkContinues(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(goldenFolder); os.IsNotExist(err) && testfile.Update() {
		synctest.Test(t, func(t *testing.T) { writeMiddle(t, goldenFolder) })
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(goldenFolder)); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) { continueMiddle(t, dir) })
}

// writeMiddle writes the folder: some of its runs are in a snapshot, others only in the log.
func writeMiddle(t *testing.T, dir string) {
	t.Helper()
	e, ctx := openMiddle(t, t.TempDir()), t.Context()
	e.start("trip", "ann", engine.Key("sleeps"))
	signals := e.start("approval", "7 EUR", engine.Key("waits for a signal"))
	asks := e.start("approval", "8 EUR", engine.Key("asks"))
	e.start("saga", "good", engine.Key("can undo"))
	paused := e.start("slow", "a", engine.Key("paused"))
	e.start("flow", "b", engine.Key("paused workflow"))
	e.elapse(time.Second)
	e.check(e.Signal(ctx, signals, "begin", "go", engine.ID("1")))
	e.check(e.Signal(ctx, signals, "more", "kept", engine.ID("2")))
	e.check(e.Signal(ctx, asks, "begin", "go", engine.ID("1")))
	e.check(e.Signal(ctx, asks, "amount", 8, engine.ID("2")))
	e.check(e.Pause(ctx, paused, "ann"))
	e.check(e.PauseWorkflow(ctx, "flow", "ann"))
	e.elapse(11 * time.Minute) // until there is a snapshot
	e.start("parent", 40, engine.Key("waits for a child"))
	undoes := e.start("saga", "bad", engine.Key("undoes"))
	e.elapse(time.Second)
	e.check(e.Cancel(ctx, undoes, "ben"))
	e.elapse(40 * ms)
	e.check(e.Backup(ctx, dir))
	for _, name := range []string{"log.db", "blobs/snapshot-*"} {
		if found, _ := filepath.Glob(filepath.Join(dir, name)); len(found) == 0 {
			t.Errorf("the folder has no %s", name)
		}
	}
	e.check(e.Close(ctx))
}

// continueMiddle continues the runs of the folder until they have ended.
func continueMiddle(t *testing.T, dir string) {
	t.Helper()
	ctx := t.Context()
	new(goldenEngine).elapse(13 * time.Minute) // the clock must not be before the time of the folder
	e := openMiddle(t, dir)
	find := func(key string) string {
		ids, err := e.Find(ctx, key, 2)
		if err != nil || len(ids) != 1 {
			t.Fatalf("%q: %d runs, %v", key, len(ids), err)
		}
		return ids[0]
	}
	for key, state := range map[string]string{
		"sleeps": engine.StateWaiting, "waits for a signal": engine.StateWaiting, "asks": engine.StateWaiting, "can undo": engine.StateWaiting,
		"paused": engine.StatePaused, "paused workflow": engine.StateQueued, "undoes": engine.StateUndoing,
	} {
		e.wants(find(key), state)
	}
	if paused, err := e.PausedWorkflows(ctx); err != nil || paused["flow"].By != "ann" {
		t.Errorf("paused workflows: %+v, %v", paused, err)
	}
	signals, asks := find("waits for a signal"), find("asks")
	e.check(e.Signal(ctx, signals, "amount", 7, engine.ID("3")))
	for _, run := range []string{signals, asks} {
		e.check(e.Answer(ctx, run, "approve", engine.Answer{Choice: engine.Approve, By: "ann"}))
		e.check(e.Answer(ctx, run, "colour", engine.Answer{Choice: "red", By: "ann"}))
		e.check(e.Signal(ctx, run, "more", "last", engine.ID("4")))
	}
	e.check(e.Signal(ctx, asks, "more", "very last", engine.ID("5")))
	e.check(e.Resume(ctx, find("paused"), "ann"))
	e.check(e.ResumeWorkflow(ctx, "flow", "ann"))
	e.check(e.Signal(ctx, find("paused workflow"), "end", "the end", engine.ID("1")))
	for _, want := range []struct{ key, state, output string }{
		{"sleeps", engine.StateSucceeded, `"hotel of ann, [seat 5 seat 3 seat 1 seat 4 seat 2], 13"`},
		{"waits for a signal", engine.StateSucceeded, `"go7approvered[kept last]"`},
		{"asks", engine.StateSucceeded, `"go8approvered[last very last]"`},
		{"can undo", engine.StateSucceeded, `"good"`},
		{"paused", engine.StateSucceeded, `"a"`},
		{"paused workflow", engine.StateSucceeded, `"the end"`},
		{"waits for a child", engine.StateSucceeded, `"1600 [16 4 9]"`},
		{"undoes", engine.StateCanceled, ""},
	} {
		run, err := e.Wait(ctx, find(want.key))
		if err != nil {
			t.Fatal(err)
		}
		if run.State != want.state || string(run.Output) != want.output {
			t.Errorf("the run that %s is %s (%s) with the output %s, want %s with %s", want.key, run.State, run.Error, run.Output, want.state, want.output)
		}
	}
	undone := 0
	run, err := e.Get(ctx, find("undoes"))
	e.check(err)
	for _, s := range run.Steps {
		if s.Kind == "undo" && s.Status == engine.StateSucceeded {
			undone++
		}
	}
	if undone != 5 {
		t.Errorf("%d operations are undone, want 5", undone)
	}
	e.check(e.Close(context.Background()))
}
