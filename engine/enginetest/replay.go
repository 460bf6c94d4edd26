package enginetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/replay"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// History is the history of a run, as [engine.Engine.History] and tideover show RUN --history return
// it. It has the run's data: its input, and the results of its operations.
type History struct {
	Name string // names it in errors, such as its file
	Data []byte // JSON
}

// Replayed says how code would continue the run of a history.
type Replayed struct {
	Run      string
	Workflow string
	Parked   string   // why the run would wait in state needs-handler for other code; "" if it would not
	Next     []string // operations or steps that the run would execute or wait for next; nil if the function has ended
	Error    string   // the error that the function has returned
}

// Histories reads the histories in the files whose names match the pattern, as [filepath.Glob] does.
// A file can have several. The test fails if there is none, or a file can't be read.
func Histories(t testing.TB, pattern string) (list []History) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatalf("histories %s: %v", pattern, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("histories: %v", err)
		}
		for dec := json.NewDecoder(bytes.NewReader(text)); ; {
			h := History{Name: file}
			if err := dec.Decode((*json.RawMessage)(&h.Data)); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(h.wrong(err))
			}
			list = append(list, h)
		}
	}
	if len(list) == 0 {
		t.Fatalf("histories %s: no file has one: write it by tideover show RUN --history", pattern)
	}
	return list
}

// Replay calls the functions of the workflows with what the runs of the histories have stored, and
// tells how they would continue these runs if they were deployed now. It is the judgement of the
// engine: the test fails for each run that the engine would park, with the engine's reason, and for
// each function that panics or blocks. [History.Replay] does not fail the test.
//
// Nothing is executed: no operation, undo, child or handler. Sleeps end in virtual time. A run that
// has ended is replayed to its end. A function that comes to another operation ends there: what it
// does next depends on the result, which may still park the run. See Replayed.Next.
//
// Of a workflow of steps, the steps that have not succeeded need a handler. The workflows must
// include those that a function starts by their names: see [engine.Registered].
func Replay(t *testing.T, histories []History, workflows ...*engine.Workflow) (list []Replayed) {
	t.Helper()
	if len(histories) == 0 {
		t.Error("replay: no histories")
	}
	for _, h := range histories {
		r, err := h.Replay(t, workflows...)
		switch {
		case err != nil:
			t.Error(err)
			continue
		case r.Parked != "":
			t.Errorf("%s: run %s of %s would be parked: %s", h.Name, r.Run, r.Workflow, r.Parked)
		}
		list = append(list, r)
	}
	return list
}

// Replay is [Replay] for one history. It returns an error if the history can't be read or is that of
// another workflow, or if the function panics or blocks.
func (h History) Replay(t *testing.T, workflows ...*engine.Workflow) (r Replayed, err error) {
	t.Helper()
	var stored replay.History
	if err := json.Unmarshal(h.Data, &stored); err != nil {
		return r, h.wrong(err)
	}
	switch {
	case stored.Format < 1 || stored.Run == "":
		return r, h.wrong(errors.New("it has no format or no run"))
	case stored.Format > replay.Format:
		return r, fmt.Errorf("%s: the history of run %s has format %d, and this version knows %d: use a newer version of tideover", h.Name, stored.Run, stored.Format, replay.Format)
	}
	r.Run, r.Workflow = stored.Run, stored.Workflow
	defer func() {
		if p := recover(); p != nil && err == nil {
			panic(p)
		} // else a function that blocks has left its goroutine in the bubble
	}()
	synctest.Test(t, func(*testing.T) {
		var v replay.Verdict
		if v, err = judge(&stored, workflows); err != nil {
			err = fmt.Errorf("%s: run %s: %w", h.Name, stored.Run, err)
		}
		r.Parked, r.Next, r.Error = v.Parked, v.Next, v.Error
	})
	return r, err
}

// wrong returns the error of a text that is not a history.
func (h History) wrong(why error) error {
	return fmt.Errorf("%s: not the history of a run: %w: write it by tideover show RUN --history", h.Name, why)
}

// longestReplay is how long the sleeps of a replayed run can be together, in virtual time.
const longestReplay = 10 * 365 * 24 * time.Hour

// judge returns how an engine with the workflows would continue the run.
func judge(h *replay.History, workflows []*engine.Workflow) (v replay.Verdict, err error) {
	m, run, err := machine.Reopen(h.Data, time.Now().UnixNano())
	switch {
	case errors.Is(err, machine.ErrFormat):
		return v, fmt.Errorf("%w: use a newer version of tideover", err)
	case err == nil && (run.ID.String() != h.Run || run.Def.Name != h.Workflow):
		err = fmt.Errorf("its data is that of run %s of %s", run.ID, run.Def.Name)
	}
	if err != nil {
		return v, fmt.Errorf("the history is damaged: %w: write it again by tideover show %s --history", err, h.Run)
	}
	if strings.HasPrefix(run.StepDef(0).Handler, "function:") { // see engine.CallFunction
		return v, fmt.Errorf("workflow %s is described by data, which its runs keep: there is no code to replay", h.Workflow)
	}
	verdicts := make(chan replay.Verdict, 1)
	store := new(memlog.Store)
	e, err := open(engine.Config{
		Log: &replay.Log{Log: store.Open(), Machine: m, Run: run, Report: func(v replay.Verdict) {
			select {
			case verdicts <- v:
			default: // the first one counts
			}
		}},
		Workflows: workflows,
	})
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, crash(e)) }()
	if _, ok := e.Workflow(h.Workflow); !ok {
		return v, fmt.Errorf("it is a run of workflow %s, which is none of the replayed ones", h.Workflow)
	}
	select {
	case v = <-verdicts:
	case <-e.Done():
		return v, e.Err()
	case <-time.After(longestReplay):
		v.Failed = fmt.Sprintf("it sleeps for more than %v", longestReplay)
	}
	if v.Failed != "" {
		return v, fmt.Errorf("the function of %s can't be replayed: %s", h.Workflow, v.Failed)
	}
	return v, nil
}
