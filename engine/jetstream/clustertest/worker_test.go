//go:build linux

package clustertest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/internal/boottime"
	"github.com/tideover/tideover/retry"
)

const (
	clusterName = "crash"
	shards      = 8
)

// step describes a step of the test's workflow.
type step struct {
	name   string
	policy string
	needs  []string
}

var steps = []step{
	{"a", "fixed(20ms) attempts=4", nil},
	{"b", "exponential(5ms..80ms) jitter=0.5..1.5 attempts=5", []string{"a"}},
	{"c", "linear(10ms..50ms) jitter=full attempts=3", []string{"a"}},
	{"d", "decorrelated(5ms..60ms) attempts=4", []string{"b", "c"}},
}

// flowPolicies has the policies of the operations of the test's flow. Their names have
// the number of the run in its chain at the end. The function is suspended while z waits.
var flowPolicies = map[string]string{
	"a": "fixed(20ms) attempts=4",
	"m": "exponential(5ms..80ms) jitter=0.5..1.5 attempts=5",
	"z": "fixed(1100ms) attempts=3",
}

// flowSleep is how long the flow sleeps: long enough for its function to be suspended.
const flowSleep = 1100 * time.Millisecond

// chainLength returns how many runs the chain of the flow with this key has, if none
// dies.
func chainLength(key string) int { return len(key)%2 + 1 }

// plannedOutcome returns the outcome of the n-th attempt of a step that counts,
// the same in every process.
func plannedOutcome(key, step string, n int) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s/%d", key, step, n)
	switch v := h.Sum64() % 100; {
	case v < 55:
		return "ok"
	case v < 57:
		return "permanent"
	case v < 62:
		return "after"
	default:
		return "fail"
	}
}

// witness is a file that the handlers of all processes write, one line per
// write.
type witness struct{ file *os.File }

func openWitness(dir string) (*witness, error) {
	file, err := os.OpenFile(filepath.Join(dir, "witness"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &witness{file}, err
}

func (w *witness) log(format string, args ...any) {
	since, _ := boottime.Elapsed()
	line := fmt.Sprintf("%d ", since) + fmt.Sprintf(format, args...) + "\n"
	if _, err := w.file.WriteString(line); err != nil {
		panic(err)
	}
}

// workflows are the workflows of all processes.
type workflows struct {
	steps, flow, family, member *engine.Workflow

	witness *witness
}

// of returns the workflow of the run with the number i.
func (w *workflows) of(i int) *engine.Workflow {
	switch {
	case isFamily(i):
		return w.family
	case i%4 == 3:
		return w.flow
	}
	return w.steps
}

func newWorkflows(w *witness) (*workflows, error) {
	var parts []engine.Part
	for _, s := range steps {
		parts = append(parts, engine.Step(s.name, w.attempt, engine.Policy(s.policy), engine.After(s.needs...), engine.MaxLost(100)))
	}
	ofSteps, err := engine.NewWorkflow("crash", parts...)
	if err != nil {
		return nil, err
	}
	patient := engine.Function(engine.MaxLost(100))
	flow, err1 := engine.NewFlow(flowName, w.flow, patient)
	member, err2 := engine.NewFlow(memberName, w.member, patient, engine.MaxRuns(20))
	family, err3 := engine.NewFlow(familyName, func(f *engine.Flow, key string) (string, error) { return w.family(f, key, member) }, patient)
	return &workflows{ofSteps, flow, family, member, w}, errors.Join(err1, err2, err3)
}

const flowName = "crash-flow"

// attempt is an attempt of a step or an operation of the run with the key.
func (w *witness) attempt(ctx context.Context, key string) (string, error) {
	t, _ := engine.TaskOf(ctx)
	w.log("begin %s %s %d", key, t.Step, t.Total)
	long := time.Duration(rand.IntN(10)) * time.Millisecond
	if rand.IntN(20) == 0 { // long enough to be interrupted
		long *= 300
	}
	select {
	case <-time.After(long): // real clock: every duration must work
	case <-ctx.Done():
		w.log("told %s %s %d", key, t.Step, t.Total)
		return "", ctx.Err()
	}
	f := plannedOutcome(key, t.Step, t.Spent)
	w.log("end %s %s %d %s", key, t.Step, t.Total, f)
	switch f {
	case "ok":
		return key + t.Step, nil
	case "permanent":
		return "", retry.Permanent(errors.New(f))
	case "after":
		return "", retry.After(errors.New(f), 30*time.Millisecond)
	}
	return "", errors.New(f)
}

// flow is the function of the test's flow. The input is the key; the function adds a + for
// each further run of the chain.
func (w *witness) flow(f *engine.Flow, input string) (string, error) {
	key := strings.TrimRight(input, "+")
	n := len(input) - len(key)
	do := func(ctx context.Context) (string, error) { return w.attempt(ctx, key) }
	attempts := func(op string) engine.AttemptOption {
		return engine.Attempts(engine.Policy(flowPolicies[op]), engine.MaxLost(100))
	}
	if _, err := engine.Do(f, fmt.Sprint("a", n), do, attempts("a")); err != nil {
		return "", err
	}
	each := func(ctx context.Context, _ int) (string, error) { return do(ctx) }
	if _, err := engine.Map(f, fmt.Sprint("m", n), []int{1, 2, 3}, each, attempts("m"), engine.Parallel(2)); err != nil {
		return "", err
	}
	if err := engine.Sleep(f, fmt.Sprint("rest", n), flowSleep); err != nil {
		return "", err
	}
	last, err := engine.Do(f, fmt.Sprint("z", n), do, attempts("z"))
	if err != nil || n+1 == chainLength(key) {
		return last, err
	}
	return "", engine.Again(f, input+"+")
}

// open opens an engine of the cluster.
func open(ctx context.Context, dir, name, url string) (*engine.Engine, *workflows, error) {
	w, err := openWitness(dir)
	if err != nil {
		return nil, nil, err
	}
	flows, err := newWorkflows(w)
	if err != nil {
		return nil, nil, err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})).With("worker", name)
	cfg := jetstream.Config{
		URL: url, Name: clusterName, Shards: shards, MemberName: name,
		Cache: filepath.Join(dir, name, "cache"), SecondPlace: filepath.Join(dir, "second"), Logger: logger,
	}
	log, err := jetstream.Open(ctx, cfg)
	for err != nil && ctx.Err() == nil && mayPass(err) { // servers may be away for longer than Open waits
		log, err = jetstream.Open(ctx, cfg)
	}
	if err != nil {
		return nil, nil, err
	}
	e, err := engine.Open(ctx, engine.Config{
		Log: log, Dir: filepath.Join(dir, name, "views"), Workflows: []*engine.Workflow{flows.steps, flows.flow, flows.family, flows.member}, Concurrency: 32, Logger: logger,
	})
	return e, flows, err
}

// mayPass reports whether a log could not be opened in time.
func mayPass(err error) bool {
	gaveUp, ok := errors.AsType[*retry.Error](err)
	return ok && gaveUp.Reason != retry.StopPermanent
}

// work is the main function of a worker process: it starts its share of the
// runs, and works on the shards that it owns.
func work(dir string) error {
	name, url := os.Getenv("CRASH_NAME"), os.Getenv("CRASH_URL")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	e, flows, err := open(ctx, dir, name, url)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	first, every, last := number("CRASH_FIRST"), number("CRASH_EVERY"), number("CRASH_LAST")
	d, err := newDriver(dir, e, flows, flows.witness)
	if err != nil {
		return err
	}
	for i := first % every; i < first; i += every {
		if isFamily(i) {
			go d.drive(ctx, i)
		}
	}
	for i := first; i < last && ctx.Err() == nil; i += every {
		key := fmt.Sprintf("key-%d", i)
		run, err := e.Start(ctx, flows.of(i), key, engine.Key(key))
		if err != nil {
			fmt.Fprintln(os.Stderr, "start", key, err)
			i -= every // with a key the start can be repeated
			continue
		}
		fmt.Println("ack", i, run.ID)
		if isFamily(i) {
			go d.drive(ctx, i)
		}
		select {
		// real clock: it spreads the starts over the time of the test
		case <-time.After(time.Duration(number("CRASH_PAUSE")) * time.Millisecond):
		case <-ctx.Done():
		}
	}
	<-ctx.Done()
	return e.Close(context.Background())
}

func number(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	return n
}
