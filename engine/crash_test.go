package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/internal/faultdisk"
	"github.com/tideover/tideover/internal/boottime"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// The crash test kills a process that runs workflows, again and again. Then it compares the state of
// the engine with evidence that does not come from the engine: a file to which the handlers write
// what they do (the witness), and the answers of the process. Both outlive the process.

var (
	crashRuns  = flag.Int("crash.runs", 60, "runs that the crash test starts")
	crashKills = flag.Int("crash.kills", 4, "how often it kills the process")
	crashSeed  = flag.Uint64("crash.seed", 0, "of its randomness; 0 means any")
	crashDelay = flag.Duration("crash.delay", 25*time.Millisecond, "how long a sync takes in TestKilledAgainAndAgainOnABadDisk")
)

const crashChildEnv = "TIDEOVER_CRASH_CHILD"

// crashStep says how a step of the test's workflow behaves.
type crashStep struct {
	name   string
	policy string
	needs  []string
}

var crashSteps = []crashStep{
	{"a", "fixed(20ms) attempts=4", nil},
	{"b", "exponential(5ms..80ms) jitter=0.5..1.5 attempts=5", []string{"a"}},
	{"c", "linear(10ms..50ms) jitter=full attempts=3", []string{"a"}},
	{"d", "decorrelated(5ms..60ms) attempts=4", []string{"b", "c"}},
}

// fate returns how the n-th attempt of a step that comes to an end behaves. It is the same in every
// process.
func fate(key, step string, n int) string {
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

// witness is the file to which the handlers write, one line in each write. After a simulated power
// failure it writes nothing.
type witness struct {
	file  *os.File
	power *power
}

func (w *witness) say(format string, args ...any) {
	w.power.do(func() {
		since, _ := boottime.Elapsed()
		line := fmt.Sprintf("%d ", since) + fmt.Sprintf(format, args...) + "\n"
		if _, err := w.file.WriteString(line); err != nil {
			panic(err)
		}
	})
}

// crashWorkflow returns the workflow of the test. The behaviour of an attempt depends on how many
// attempts of the step have ended, which is what a policy counts. An attempt calls hang when it
// begins.
//
// real clock: an attempt takes a random time, which decides nothing
func crashWorkflow(w *witness, ended func(key, step string) int, hang func(key, step string)) *Workflow {
	parts := []Part{}
	for _, s := range crashSteps {
		do := func(ctx context.Context, key string) (string, error) {
			t, _ := TaskOf(ctx)
			n := ended(key, s.name)
			w.say("begin %s %s %d", key, s.name, t.Total)
			hang(key, s.name)
			time.Sleep(time.Duration(rand.IntN(8)) * time.Millisecond)
			f := fate(key, s.name, n)
			w.say("end %s %s %d %s", key, s.name, t.Total, f)
			switch f {
			case "ok":
				return key + s.name, nil
			case "permanent":
				return "", retry.Permanent(errors.New(f))
			case "after":
				return "", retry.After(errors.New(f), 30*time.Millisecond)
			}
			return "", errors.New(f)
		}
		parts = append(parts, Step(s.name, do, Policy(s.policy), After(s.needs...), MaxLost(50)))
	}
	told := Step("tell", func(ctx context.Context, d Ended) (string, error) {
		t, _ := TaskOf(ctx)
		w.say("told %s %s %s", d.Key, d.State, t.Run)
		return "", nil
	}, MaxLost(50))
	return must(NewWorkflow("crash", append(parts, OnEnd(must(NewWorkflow("told", told))))...))
}

// crashChild is the process that is killed. With CRASH_HANG the first step of its last
// run hangs, and it prints "hangs" then.
//
// real clock: a helper process pauses between starts, and polls for the end of runs
func crashChild(dir string) {
	if text := os.Getenv("CRASH_DELAY"); text != "" { // a sync takes so long, and one in twenty fails
		must(faultdisk.New(filepath.Join(dir, "data"), faultdisk.Config{
			Seed: rand.Uint64(), Delay: must(time.ParseDuration(text)), FailSync: func(string) bool { return rand.IntN(20) == 0 },
		}))
	}
	file := must(os.OpenFile(filepath.Join(dir, "witness"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))
	var e *Engine
	opened := make(chan struct{})
	spent := func(key, step string) int {
		<-opened
		// Other tests check the engine's count. Here it only puts the behaviours in order.
		ids := must(e.Find(context.Background(), key, 2))
		i := must(e.Get(context.Background(), ids[0]))
		for _, s := range i.Steps {
			if s.Name == step {
				return s.Spent
			}
		}
		return 0
	}
	from := must(strconv.Atoi(os.Getenv("CRASH_FROM")))
	to := must(strconv.Atoi(os.Getenv("CRASH_TO")))
	hang := func(key, step string) {
		if os.Getenv("CRASH_HANG") != "" && step == crashSteps[0].name && key == fmt.Sprintf("key-%d", to-1) {
			fmt.Println("hangs")
			select {}
		}
	}
	w := crashWorkflow(&witness{file, new(power)}, spent, hang)
	cfg := Config{
		Dir: filepath.Join(dir, "data"), Workflows: []*Workflow{w}, Concurrency: 32, snapshotAfter: 30_000,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	var err error
	e, err = Open(context.Background(), cfg)
	for err != nil && os.Getenv("CRASH_DELAY") != "" { // a sync has failed
		e, err = Open(context.Background(), cfg)
	}
	if err != nil {
		panic(err)
	}
	close(opened)
	fmt.Println("ready")
	for i := from; i < to; i++ {
		key := fmt.Sprintf("key-%d", i)
		run := must(e.Start(context.Background(), w, key, Key(key)))
		fmt.Println("ack", i, run.ID)
		if i%7 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if os.Getenv("CRASH_DRAIN") == "" {
		select {}
	}
	out := must(os.Create(filepath.Join(dir, "result")))
	enc := json.NewEncoder(out)
	for i := range to {
		ids := must(e.Find(context.Background(), fmt.Sprintf("key-%d", i), 2))
		if len(ids) != 1 {
			panic(fmt.Sprintf("key-%d: %d runs", i, len(ids)))
		}
		if err := enc.Encode(must(e.Wait(context.Background(), ids[0]))); err != nil {
			panic(err)
		}
	}
	for len(must(e.Stats(context.Background())).open("told")) > 0 {
		time.Sleep(time.Millisecond)
	}
	if err := e.Close(context.Background()); err != nil {
		panic(err)
	}
	_ = out.Close()
}

// open returns the states of the workflow's runs that have not ended.
func (s Stats) open(workflow string) map[string]int {
	for _, w := range s.Workflows {
		if w.Name == workflow {
			return w.States
		}
	}
	return nil
}

func TestKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	killAgainAndAgain(t)
}

// This test uses a simulated disk: each sync takes long, and one in twenty fails.
func TestKilledAgainAndAgainOnABadDisk(t *testing.T) {
	t.Parallel()
	killAgainAndAgain(t, "CRASH_DELAY="+crashDelay.String())
}

// killAgainAndAgain runs the crash test. env is added to the environment of the processes.
func killAgainAndAgain(t *testing.T, env ...string) {
	t.Helper()
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-crash.seed=%d -crash.runs=%d -crash.kills=%d", seed, *crashRuns, *crashKills)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	acked := map[int]string{}
	for kill := range *crashKills {
		to := *crashRuns * (kill + 1) / (*crashKills + 1)
		after := time.Duration(random.IntN(400)+20) * time.Millisecond
		if kill%2 == 0 { // while it is busy for certain
			after = time.Duration(random.IntN(3000)+1) * time.Microsecond
		}
		crash(t, dir, acked, to, after, kill == *crashKills-1, env)
	}
	crash(t, dir, acked, *crashRuns, 0, false, env)
	judge(t, dir, acked, *crashRuns)
}

// crash starts the process and kills it some time after it has acknowledged a start, or has none
// to make; a time of 0 lets the process end by itself. With hang it is killed some time after an
// attempt hangs, so that at least one attempt is lost.
//
// real clock: the delay varies where the process is killed; every place is right
func crash(t *testing.T, dir string, acked map[int]string, to int, after time.Duration, hang bool, env []string) {
	t.Helper()
	cmd := exec.CommandContext(testwait.Context(t), os.Args[0])
	from := 0
	for acked[from] != "" {
		from++
	}
	hang = hang && from < to
	cmd.Env = append(append(os.Environ(), env...), crashChildEnv+"="+dir, fmt.Sprintf("CRASH_FROM=%d", from), fmt.Sprintf("CRASH_TO=%d", max(to, from)))
	if after == 0 {
		cmd.Env = append(cmd.Env, "CRASH_DRAIN=1")
	}
	if hang {
		cmd.Env = append(cmd.Env, "CRASH_HANG=1")
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out := must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for in := bufio.NewScanner(out); in.Scan(); {
		begun := strings.HasPrefix(in.Text(), "ack") || from >= to
		if hang {
			begun = in.Text() == "hangs"
		}
		if begun && after > 0 {
			time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
			after = -1
		}
		var i int
		var id string
		if n, _ := fmt.Sscanf(in.Text(), "ack %d %s", &i, &id); n == 2 {
			if old := acked[i]; old != "" && old != id {
				t.Errorf("key-%d was acknowledged as %s, then as %s", i, old, id)
			}
			acked[i] = id
		}
	}
	err := cmd.Wait()
	if after == 0 && err != nil || strings.Contains(stderr.String(), "panic") {
		t.Fatalf("the process: %v\n%s", err, stderr.String())
	}
}

type deed struct {
	step    string
	attempt int
}

type testimony struct {
	begin, end int64
	fate       string
}

// judge compares the state of the engine with the witness.
func judge(t *testing.T, dir string, acked map[int]string, runs int) {
	t.Helper()
	seen, told := testimonies(t, filepath.Join(dir, "witness"))
	file := must(os.Open(filepath.Join(dir, "result")))
	defer file.Close()
	lost, total := 0, 0
	for dec := json.NewDecoder(file); ; total++ {
		var i Info
		if err := dec.Decode(&i); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		n := must(strconv.Atoi(strings.TrimPrefix(i.Key, "key-")))
		if acked[n] != i.ID {
			t.Errorf("%s is run %s, acknowledged was %q", i.Key, i.ID, acked[n])
		}
		lost += judgeRun(t, &i, seen[i.Key])
		if list := slices.Collect(maps.Values(told[i.Key])); !slices.Equal(list, []string{i.State}) {
			t.Errorf("%s is %s, told of as %q", i.Key, i.State, list)
		}
	}
	if total != runs {
		t.Errorf("%d runs, want %d", total, runs)
	}
	t.Logf("%d runs, %d attempts lost", total, lost)
	if lost == 0 {
		t.Error("no attempt was lost: the test has not tested anything")
	}
}

// testimonies returns the lines of the witness for each key, and which follow-up runs reported its
// end, with the reported state.
func testimonies(t *testing.T, path string) (seen map[string]map[deed]testimony, told map[string]map[string]string) {
	t.Helper()
	seen, told = map[string]map[deed]testimony{}, map[string]map[string]string{}
	for line := range strings.Lines(string(must(os.ReadFile(path)))) {
		f := strings.Fields(line)
		if key := f[2]; f[1] == "told" {
			if told[key] == nil {
				told[key] = map[string]string{}
			}
			told[key][f[4]] = f[3]
			continue
		}
		at, key, d := must(strconv.ParseInt(f[0], 10, 64)), f[2], deed{f[3], must(strconv.Atoi(f[4]))}
		if seen[key] == nil {
			seen[key] = map[deed]testimony{}
		}
		s := seen[key][d]
		switch f[1] {
		case "begin":
			if s.begin != 0 {
				t.Errorf("%s: attempt %d of step %s was made twice", key, d.attempt, d.step)
			}
			s.begin = at
		case "end":
			s.end, s.fate = at, f[5]
		}
		seen[key][d] = s
	}
	return seen, told
}

// judgeRun judges one run, and returns how many of its attempts were lost.
func judgeRun(t *testing.T, i *Info, seen map[deed]testimony) (lost int) {
	t.Helper()
	if !i.Finished() {
		t.Errorf("%s is %s", i.Key, i.State)
	}
	known := 0
	dead := false
	for k, s := range i.Steps {
		p := must(retry.Parse(crashSteps[k].policy))
		if s.Policy != p.String() {
			t.Errorf("%s: policy of %s is %q, was written %q", i.Key, s.Name, s.Policy, p)
		}
		if s.Spent > p.Attempts {
			t.Errorf("%s: step %s made %d attempts, the policy allows %d", i.Key, s.Name, s.Spent, p.Attempts)
		}
		counted, ended := 0, int64(0)
		var wait time.Duration
		for n, a := range s.Attempts {
			d := deed{s.Name, a.Number}
			w, there := seen[d]
			if a.Number != n+1 {
				t.Errorf("%s: attempt %d of step %s comes as number %d", i.Key, a.Number, s.Name, n+1)
			}
			if there {
				known++
				if least := ended + int64(wait); w.begin < least {
					t.Errorf("%s: attempt %d of step %s began %v early", i.Key, a.Number, s.Name, time.Duration(least-w.begin))
				}
			}
			switch a.Outcome {
			case "succeeded", "failed":
				if want := map[bool]string{true: "ok"}[a.Outcome == "succeeded"]; !there || w.end == 0 || (want == "ok") != (w.fate == "ok") {
					t.Errorf("%s: attempt %d of step %s is %s, the witness saw %+v", i.Key, a.Number, s.Name, a.Outcome, w)
				}
				counted++
			case "lost":
				lost++
			default:
				t.Errorf("%s: attempt %d of step %s is %s", i.Key, a.Number, s.Name, a.Outcome)
			}
			// The handler writes to the witness before the engine records the end.
			ended, wait = w.end, 0
			if a.Wait != nil {
				wait = a.Wait.Delay
				if a.Outcome == "failed" && a.Error == "after" && wait < 30*time.Millisecond {
					t.Errorf("%s: the server's 30ms became %v", i.Key, wait)
				}
			}
		}
		if counted > p.Attempts {
			t.Errorf("%s: step %s has %d attempts that count, the policy allows %d", i.Key, s.Name, counted, p.Attempts)
		}
		dead = dead || s.Status == "failed"
	}
	if known != len(seen) {
		t.Errorf("%s: the witness saw %d attempts, the history has %d of them", i.Key, len(seen), known)
	}
	if want := map[bool]string{true: "dead", false: "succeeded"}[dead]; i.State != want {
		t.Errorf("%s is %s, its steps say %s", i.Key, i.State, want)
	}
	if want := fmt.Sprintf("%q", i.Key+"d"); !dead && string(i.Output) != want {
		t.Errorf("%s: output %s, want %s", i.Key, i.Output, want)
	}
	return lost
}
