// Flows runs workflows that are code. sequences.go has those whose operations follow each other:
//
//	loop       a loop over data
//	branch     branches on a result and on an error
//	named      100 operations with names of their own
//	endless    a loop without end
//	trip       operations that are undone if a later one fails
//
// parallel.go has those that do several things at the same time:
//
//	fanout     1000 operations side by side, and a sum of their results
//	parcel     branches of different kinds of operations side by side
//	children   runs of another workflow, and a report on their results
//
// waits.go has those that wait:
//
//	sleep      a sleep of three days
//	approval   waits for signals, and a question to a person with a timeout
//
// Try one, kill it at any time, and start it again: it continues where it was.
//
//	go run ./examples/flows -dir data loop
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/tideover/tideover/engine"
)

// settings are the flags. The test that kills the program shortens the waits, and lets
// operations lose more attempts than they may by default.
type settings struct {
	dir     string
	key     string
	runs    int
	wait    time.Duration
	maxLost int
	calls   string
}

func main() {
	var s settings
	flag.StringVar(&s.dir, "dir", "data", "folder in which the engine stores everything")
	flag.StringVar(&s.key, "key", "first", "prefix of the keys of the runs: with another one, other runs are started")
	flag.IntVar(&s.runs, "runs", 1, "how many runs to start")
	flag.DurationVar(&s.wait, "wait", 0, "replaces the waits of the workflows; 0 means no change")
	flag.IntVar(&s.maxLost, "max-lost", engine.DefaultMaxLost, "how many attempts of an operation may be lost in a row with the process")
	flag.StringVar(&s.calls, "calls", os.DevNull, "file to which each call of the remote service appends two lines")
	flag.Parse()
	if err := run(context.Background(), flag.Arg(0), s, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "flows:", err)
		os.Exit(1)
	}
}

// run starts the runs of one workflow, waits for them, and prints their results.
func run(ctx context.Context, name string, s settings, out io.Writer) error {
	calls, err := os.OpenFile(s.calls, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = calls.Close() }()
	p, ok := programs(&service{calls: calls}, s.wait, engine.Operations(engine.MaxLost(s.maxLost)))[name]
	if !ok {
		return fmt.Errorf("there is no workflow %q; name one of loop, branch, fanout, parcel, sleep, named, endless, approval, children, trip", name)
	}

	workflows := []*engine.Workflow{p.workflow}
	if p.child != nil {
		workflows = append(workflows, p.child) // so that children continue after a restart
	}
	eng, err := engine.Open(ctx, engine.Config{
		Dir: s.dir, Workflows: workflows, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	defer func() { _ = eng.Close(ctx) }()

	started := make([]engine.Started, s.runs)
	for i := range started {
		key := fmt.Sprintf("%s-%s-%d", name, s.key, i)
		if started[i], err = eng.Start(ctx, p.workflow, p.input(i), engine.Key(key)); err != nil {
			return err
		}
	}
	var around sync.WaitGroup
	defer around.Wait()
	if p.around != nil {
		for i, run := range started {
			around.Go(func() {
				if err := p.around(ctx, eng, run, s.dir, i); err != nil {
					slog.Error("around the run", "run", run.ID, "error", err)
				}
			})
		}
	}
	for _, run := range started {
		info, err := run.Wait(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s %s: %s%s\n", info.Key, info.State, info.Output, info.Error)
	}
	return nil
}

// program is a workflow, and the input of its i-th run.
type program struct {
	workflow *engine.Workflow
	input    func(i int) any
	child    *engine.Workflow // of its children; nil if it has none

	around func(ctx context.Context, eng *engine.Engine, run engine.Started, dir string, i int) error // what happens around it; nil means nothing
}

// programs returns the workflows by name. A wait that is not 0 replaces those of the inputs.
func programs(s *service, wait time.Duration, parts ...engine.Part) map[string]program {
	review := engine.MustFlow("review", s.review, parts...)
	return map[string]program{
		"loop":     {workflow: engine.MustFlow("loop", s.order, parts...), input: func(i int) any { return exampleOrder(i) }},
		"branch":   {workflow: engine.MustFlow("branch", s.apply, parts...), input: func(i int) any { return exampleApplication(i, wait) }},
		"fanout":   {workflow: engine.MustFlow("fanout", s.bill, parts...), input: func(i int) any { return exampleMonth(i) }},
		"parcel":   {workflow: engine.MustFlow("parcel", s.parcel, parts...), input: func(i int) any { return exampleParcel(i, wait) }},
		"sleep":    {workflow: engine.MustFlow("sleep", s.trial, parts...), input: func(i int) any { return exampleTrial(i, wait) }},
		"named":    {workflow: engine.MustFlow("named", s.migrate, parts...), input: func(i int) any { return exampleDatabase(i) }},
		"endless":  {workflow: engine.MustFlow("endless", s.meter, parts...), input: func(i int) any { return exampleMeter(i, wait) }},
		"approval": {workflow: engine.MustFlow("approval", s.expenses, parts...), input: func(i int) any { return exampleExpenses(i, wait) }, around: travel},
		"children": {workflow: engine.MustFlow("children", s.survey(review), parts...), input: func(i int) any { return exampleSurvey(i) }, child: review},
		"trip":     {workflow: engine.MustFlow("trip", s.trip, parts...), input: func(i int) any { return exampleTrip(i) }},
	}
}
