package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/benchreport"
	"github.com/tideover/tideover/internal/tidy"
)

const (
	fillers = 256 // goroutines that start the waiting runs; the time for that is not compared
	rest    = 20 * time.Second
	far     = time.Hour // waiting runs wait many times longer than the measurement
)

// child is the process that [Waiting.Measure] starts. It runs one engine.
type child struct {
	Waiting
	*tideover
	out   *json.Encoder
	tally atomic.Pointer[tally]

	soonDue *engine.Workflow // its runs wait once, and are due again soon; nil for the variant Delayed
	waited  []time.Time      // when the wait of each run of soonDue began, by its id
	farDue  *engine.Workflow // its runs wait for a time in the far future; nil for the variant Delayed
}

// Child runs a part of the measurement: "fill" starts the waiting runs and then waits
// until it is killed, "work" does new work while these runs wait.
func (w Waiting) Child(ctx context.Context, part string, in io.Reader, out io.Writer) (err error) {
	c := &child{Waiting: w, out: json.NewEncoder(out), waited: make([]time.Time, w.Due)}
	begin := time.Now()
	if err := c.open(ctx); err != nil {
		return err
	}
	opened := time.Since(begin)
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	switch part {
	case "fill":
		if err := c.fill(ctx); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, in) // until we are killed
		return err
	case "work":
		return c.continueWork(ctx, opened)
	default:
		return fmt.Errorf("there is no part %q: use fill or work", part)
	}
}

func (c *child) open(ctx context.Context) (err error) {
	go tidy.Run(ctx) // as `tideover serve` does
	var others []*engine.Workflow
	if c.Variant != Delayed {
		if err := c.makeWorkflows(); err != nil {
			return err
		}
		others = append(others, c.farDue, c.soonDue)
	}
	c.tideover, err = open(ctx, c.Dir, func(p Payload) {
		if t := c.tally.Load(); t != nil {
			t.handle(p)
		}
	}, others...)
	return err
}

// makeWorkflows makes the workflows of the waiting runs.
func (c *child) makeWorkflows() error {
	var err, err2 error
	switch c.Variant {
	case Retrying:
		c.farDue, err = engine.NewWorkflow("crowd", engine.Step("work", func(context.Context, Payload) (struct{}, error) {
			return struct{}{}, errRefused
		}, engine.Policy(fmt.Sprintf("fixed(%v) attempts=3", 10*far))))
		c.soonDue, err2 = engine.NewWorkflow("herd", engine.Step("work", c.failOnce,
			engine.Policy(fmt.Sprintf("fixed(%v) attempts=2", c.Ahead))))
	case Sleeping:
		c.farDue, err = c.newSleeper("crowd", 10*far)
		c.soonDue, err2 = c.newSleeper("herd", c.Ahead)
	default:
		return fmt.Errorf("there is no variant %q: use %s, %s or %s", c.Variant, Delayed, Retrying, Sleeping)
	}
	return errors.Join(err, err2)
}

// newSleeper returns a flow that sleeps between its third and its fourth operation.
func (c *child) newSleeper(name string, d time.Duration) (*engine.Workflow, error) {
	return engine.NewFlow(name, func(f *engine.Flow, p Payload) (struct{}, error) {
		for _, op := range []string{"price", "reserve", "charge"} {
			if _, err := engine.Do(f, op, func(context.Context) (string, error) { return c.opResult(p), nil }); err != nil {
				return struct{}{}, err
			}
		}
		if err := engine.Sleep(f, "cool-down", d); err != nil {
			return struct{}{}, err
		}
		return engine.Do(f, "ship", func(context.Context) (struct{}, error) {
			c.tally.Load().recordCall(time.Since(c.waited[p.ID].Add(d)))
			return struct{}{}, nil
		})
	})
}

// opResult returns a result of 100 bytes as JSON. It notes the time: the wait of the run begins
// when its last operation ends.
func (c *child) opResult(p Payload) string {
	if p.ID < len(c.waited) {
		c.waited[p.ID] = time.Now()
	}
	return p.Data[:98]
}

var errRefused = errors.New("dial tcp 192.0.2.7:443: connect: connection refused")

// failOnce is a handler that fails at the first attempt. At the second attempt it
// records how late the attempt is. It counts the delay from the end of the first
// attempt, so the lateness includes the time to store the failure.
func (c *child) failOnce(ctx context.Context, p Payload) (struct{}, error) {
	now := time.Now()
	if t, _ := engine.TaskOf(ctx); t.Attempt == 1 {
		c.waited[p.ID] = now
		return struct{}{}, errRefused
	}
	c.tally.Load().recordCall(now.Sub(c.waited[p.ID].Add(c.Ahead)))
	return struct{}{}, nil
}

// fill starts the waiting runs.
func (c *child) fill(ctx context.Context) error {
	begin := time.Now()
	// A list of a million starts would be a part of the memory that is measured.
	err := startTasks(ctx, c.systemFor(c.farDue), fillers, func(first, _ int) ([]Payload, bool) {
		return payloads(first, 1, begin.Add(10*far), 0), first < c.Runs
	}, func(int, start) {})
	if err != nil {
		return err
	}
	name, state := "work", "scheduled"
	if c.Variant != Delayed {
		name, state = "crowd", "waiting"
	}
	err = pollUntil(ctx, pollIdle, func(ctx context.Context) (bool, error) {
		w, err := c.workflow(ctx, name)
		if n := w.States["dead"] + w.States["needs-handler"]; err == nil && n > 0 {
			err = c.failure(ctx, name)
		}
		return w.States[state] == c.Runs, err
	})
	if err != nil {
		return err
	}
	filled := time.Now()
	if err := pollUntil(ctx, pollIdle, c.Settled); err != nil {
		return err
	}
	values := map[string]float64{"fill seconds": filled.Sub(begin).Seconds(), "fill settling seconds": time.Since(filled).Seconds()}
	select {
	case <-time.After(rest):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := errors.Join(memory(values, "filled"), c.disk(values)); err != nil {
		return err
	}
	return c.out.Encode(values)
}

// failure returns the error of a run that can't continue, although no run should fail.
func (c *child) failure(ctx context.Context, workflow string) error {
	page, err := c.List(ctx, engine.Filter{Workflow: workflow, States: []string{"dead", "needs-handler"}, Limit: 1, Fresh: true})
	if err != nil || len(page.Runs) == 0 {
		return errors.Join(errors.New("a run has failed"), err)
	}
	return fmt.Errorf("run %s is %s: %s", page.Runs[0].ID, page.Runs[0].State, page.Runs[0].Error)
}

// continueWork measures a single new run, then a load of new runs, and then runs that
// become due.
func (c *child) continueWork(ctx context.Context, opened time.Duration) error {
	run, err := c.Engine.Start(ctx, c.work, NewPayload(0, time.Time{}))
	if err != nil {
		return err
	}
	if _, err := run.Wait(ctx); err != nil {
		return err
	}
	if err := c.out.Encode(map[string]float64{"open seconds": opened.Seconds()}); err != nil {
		return err
	}
	values := map[string]float64{}
	if err := memory(values, "reopened"); err != nil {
		return err
	}
	if err := c.newWork(ctx, values); err != nil {
		return err
	}
	if err := pollUntil(ctx, pollIdle, c.Settled); err != nil {
		return err
	}
	t := newTally(c.Due, true)
	c.tally.Store(t)
	late, err := lateness(ctx, c.systemFor(c.soonDue), t, c.Due, c.Rate, c.Ahead)
	if err != nil {
		return err
	}
	for _, name := range []string{"due/s", "late p50", "late p99", "late max"} {
		values[name] = late[name]
	}
	if err := memory(values, "at the end"); err != nil {
		return err
	}
	return c.out.Encode(values)
}

// newWork lets the callers start runs that are due at once, for at least c.Seconds and
// until a snapshot was written, but at most for six times c.Seconds.
func (c *child) newWork(ctx context.Context, values map[string]float64) error {
	before, err := c.Completed(ctx)
	if err != nil {
		return err
	}
	watch := watchFiles(c.Dir + "/blobs")
	begin := time.Now()
	least := time.Duration(c.Seconds * float64(time.Second))
	starts, err := load(ctx, c.tideover, Callers, func(first, _ int) ([]Payload, bool) {
		passed := time.Since(begin)
		over := passed > least && watch.sawSnapshot() || passed > 6*least
		return payloads(first, 1, time.Time{}, 0), !over && ctx.Err() == nil
	})
	spans := watch.stop()
	if err != nil {
		return err
	}
	err = pollUntil(ctx, pollTimed, func(ctx context.Context) (bool, error) {
		n, err := c.Completed(ctx)
		return n >= before+len(starts), err
	})
	if err != nil {
		return err
	}
	values["tasks/s"] = float64(len(starts)) / time.Since(begin).Seconds()
	var during, other []time.Duration
	for _, s := range starts {
		if spans.overlaps(s) {
			during = append(during, s.took)
		} else {
			other = append(other, s.took)
		}
	}
	values["snapshots"], values["snapshot seconds"] = float64(len(spans)), spans.seconds()
	benchreport.Quantiles(values, "start", latencies(starts))
	benchreport.Quantiles(values, "start in a snapshot", during)
	benchreport.Quantiles(values, "start without", other)
	return nil
}

// disk adds the sizes of the files to the values, in MB, summed up by kind.
func (c *child) disk(values map[string]float64) error {
	sizes, err := c.Operator().DiskUsage()
	for name, size := range sizes {
		kind, _, _ := strings.Cut(strings.TrimPrefix(name, "blobs/"), "-0")
		values["disk "+kind] += float64(size) / 1e6
		values["disk"] += float64(size) / 1e6
	}
	return err
}

// systemFor returns the system for [load]: its Start starts runs of w, or runs of the
// measured workflow if w is nil.
func (c *child) systemFor(w *engine.Workflow) System {
	if w == nil {
		return c.tideover
	}
	return &atOnce{c.tideover, w}
}

// atOnce is a system that starts runs of another workflow and ignores the due times
// of tasks.
type atOnce struct {
	*tideover
	workflow *engine.Workflow
}

func (a *atOnce) Start(ctx context.Context, tasks []Payload) error {
	for _, p := range tasks {
		if _, err := a.Engine.Start(ctx, a.workflow, p); err != nil {
			return err
		}
	}
	return nil
}
