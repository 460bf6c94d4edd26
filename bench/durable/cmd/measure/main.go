// Measure makes one measurement and prints it as a line of JSON.
//
//	measure -system tideover throughput
//	measure -system river lateness
//	measure -runs 1000000 -variant retrying waiting
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"time"

	"github.com/tideover/tideover/bench/durable"
	"github.com/tideover/tideover/internal/benchreport"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

type flags struct {
	system  string
	servers durable.Servers
	n       int
	waiting durable.Waiting
	profile string
	child   string
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	var f flags
	set := flag.NewFlagSet("measure", flag.ContinueOnError)
	set.StringVar(&f.system, "system", "tideover", "what is measured")
	set.StringVar(&f.servers.Dir, "dir", os.TempDir(), "where a folder for the measurement is made")
	set.StringVar(&f.servers.Postgres, "postgres", os.Getenv("DURABLE_POSTGRES"), "connection `string`")
	set.IntVar(&f.servers.PGPid, "postgres-pid", 0, "process `id`")
	set.StringVar(&f.servers.Redis, "redis", os.Getenv("DURABLE_REDIS"), "`path` of the socket")
	set.IntVar(&f.servers.RedisPid, "redis-pid", 0, "process `id`")
	set.IntVar(&f.n, "n", 10_000, "number of tasks, of those that are due for lateness and waiting")
	set.IntVar(&f.waiting.Rate, "rate", 5000, "tasks that fall due in a second")
	set.DurationVar(&f.waiting.Ahead, "ahead", 3*time.Second, "how long before its time a task is scheduled")
	set.IntVar(&f.waiting.Runs, "runs", 100_000, "runs that wait")
	set.StringVar(&f.waiting.Variant, "variant", durable.Delayed, "what they wait for: delayed, retrying or sleeping")
	set.Float64Var(&f.waiting.Seconds, "seconds", 5, "of new work beside them, at least")
	set.StringVar(&f.profile, "cpuprofile", "", "`file` for a profile")
	set.StringVar(&f.child, "child", "", "a `part` of waiting, in this process")
	if err := set.Parse(args); err != nil {
		return err
	}
	f.waiting.Due = f.n
	if f.profile != "" {
		file, err := os.Create(f.profile)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	if f.child != "" {
		f.waiting.Dir = f.servers.Dir
		return f.waiting.Child(ctx, f.child, in, out)
	}
	dir, err := os.MkdirTemp(f.servers.Dir, "durable-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	f.servers.Dir, f.waiting.Dir = filepath.Join(dir, "data"), dir
	r := benchreport.Result{Scenario: set.Arg(0), System: f.system}
	if r.Values, err = f.measure(ctx, &r); err != nil {
		return fmt.Errorf("%s of %s: %w", r.Scenario, r.System, err)
	}
	return json.NewEncoder(out).Encode(r)
}

func (f *flags) measure(ctx context.Context, r *benchreport.Result) (map[string]float64, error) {
	open := durable.Systems[f.system]
	if open == nil {
		return nil, errors.New("there is no such system")
	}
	switch r.Scenario {
	case "throughput":
		return durable.Throughput(ctx, open, f.servers, f.n)
	case "lateness":
		return durable.Lateness(ctx, open, f.servers, f.n, f.waiting.Rate, f.waiting.Ahead)
	case "waiting":
		r.System = fmt.Sprintf("%s %d", f.waiting.Variant, f.waiting.Runs)
		return f.waiting.Measure(ctx, child)
	default:
		return nil, errors.New("there is no such scenario: throughput, lateness or waiting")
	}
}

// child returns the command for a part of the scenario waiting; see [durable.Child].
func child(ctx context.Context, part string, w durable.Waiting) *exec.Cmd {
	return exec.CommandContext(ctx, "/proc/self/exe", "-child", part, "-dir", w.Dir, "-runs", fmt.Sprint(w.Runs),
		"-variant", w.Variant, "-seconds", fmt.Sprint(w.Seconds), "-rate", fmt.Sprint(w.Rate), "-n", fmt.Sprint(w.Due),
		"-ahead", w.Ahead.String())
}
