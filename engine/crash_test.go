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
	"github.com/tideover/tideover/engine/internal/flow"
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

// crashWorkflows are the workflows of the test.
type crashWorkflows struct {
	steps, flow, family, member *Workflow

	members int // children that were written: see encodeMembers
}

func (c *crashWorkflows) all() []*Workflow { return []*Workflow{c.steps, c.flow, c.family, c.member} }

// of returns the workflow of the run with the number i.
func (c *crashWorkflows) of(i int) *Workflow {
	switch {
	case i%4 == 3:
		return c.flow
	case isFamily(i):
		return c.family
	}
	return c.steps
}

// crashKey returns the key of the run with the number i.
func crashKey(i int) string { return fmt.Sprintf("key-%d", i) }

// start starts the run with the number i, unless it was started already.
func (c *crashWorkflows) start(ctx context.Context, e *Engine, i int) (Started, error) {
	return e.Start(ctx, c.of(i), crashKey(i), Key(crashKey(i)))
}

// answered asks until there is an answer: on a bad disk the view may not be readable for a while.
func answered[T any](ask func() (T, error)) T {
	for {
		v, err := ask()
		if err == nil {
			return v
		}
		fmt.Fprintln(os.Stderr, err)
		time.Sleep(10 * time.Millisecond) // real clock: the pace at which a process asks
	}
}

// encode waits for the end of the run with the number i, and writes it. A flow may be continued by
// another run, which is written too.
func (c *crashWorkflows) encode(ctx context.Context, e *Engine, enc *json.Encoder, i int) error {
	ids := answered(func() ([]string, error) { return e.Find(ctx, crashKey(i), 2) })
	if len(ids) != 1 {
		return fmt.Errorf("%s: %d runs", crashKey(i), len(ids))
	}
	id := ids[0]
	for { // the last run of a chain has the key
		before, continues := strings.CutPrefix(answered(func() (*Info, error) { return e.Get(ctx, id) }).Source, "continues ")
		if !continues {
			break
		}
		id = before
	}
	for id != "" {
		answered(func() (*Info, error) { return e.Wait(ctx, id) })
		info := answered(func() (*Info, error) { return e.Get(ctx, id) })
		if err := enc.Encode(info); err != nil {
			return err
		}
		if err := c.encodeMembers(ctx, e, enc, info); err != nil {
			return err
		}
		id = info.ContinuedBy
	}
	return nil
}

// newCrashWorkflows returns the workflows of the test. The behaviour of an attempt depends on how
// many attempts of the step have ended, which is what a policy counts. An attempt calls hang when it
// begins.
//
// real clock: an attempt takes a random time, which decides nothing
func newCrashWorkflows(w *witness, ended func(key, step string) int, hang func(key, step string)) *crashWorkflows {
	parts := []Part{}
	for _, s := range crashSteps {
		do := func(ctx context.Context, key string) (string, error) {
			t, _ := TaskOf(ctx)
			return w.attempt(key, s.name, t.Total, ended(key, s.name), func() { hang(key, s.name) })
		}
		parts = append(parts, Step(s.name, do, Policy(s.policy), After(s.needs...), MaxLost(50)))
	}
	told := Step("tell", func(ctx context.Context, d Ended) (string, error) {
		t, _ := TaskOf(ctx)
		w.say("told %s %s %s", d.Key, d.State, t.Run)
		return "", nil
	}, MaxLost(50))
	onEnd := OnEnd(must(NewWorkflow("told", told)))
	flow := MustFlow("crash-flow", func(f *Flow, key string) (string, error) { return w.flow(f, key, hang) }, onEnd, Function(MaxLost(50)))
	member := MustFlow(crashMember, w.member, Function(MaxLost(50)))
	family := MustFlow(crashFamily, func(f *Flow, key string) (string, error) { return w.family(f, key, member) }, onEnd, Function(MaxLost(50)))
	return &crashWorkflows{steps: must(NewWorkflow("crash", append(parts, onEnd)...)), flow: flow, family: family, member: member}
}

// attempt is an attempt of a step or an operation. spent is the number of attempts of it that have
// come to an end.
//
// real clock: it takes a random time, which decides nothing
func (w *witness) attempt(key, step string, number, spent int, hang func()) (string, error) {
	w.say("begin %s %s %d", key, step, number)
	hang()
	time.Sleep(time.Duration(rand.IntN(8)) * time.Millisecond)
	f := fate(key, step, spent)
	w.say("end %s %s %d %s", key, step, number, f)
	switch f {
	case "ok":
		return key + step, nil
	case "permanent":
		return "", retry.Permanent(errors.New(f))
	case "after":
		return "", retry.After(errors.New(f), 30*time.Millisecond)
	}
	return "", errors.New(f)
}

// crashSleep is how long a flow of the test sleeps: long enough for its function to be suspended.
const crashSleep = flow.SuspendAfter + 100*time.Millisecond

// crashOps has the policies of the operations of the flow. Their names have the number of the run
// in its chain at the end. The function is suspended while z waits.
var crashOps = map[string]string{
	"a": "fixed(20ms) attempts=4",
	"m": "exponential(5ms..80ms) jitter=0.5..1.5 attempts=5",
	"z": "fixed(1100ms) attempts=3",
}

// crashChain returns how many runs the chain of the flow with this key has, if none dies.
func crashChain(key string) int { return len(key)%2 + 1 }

// flow is the function of the test's flow. The input is the key; the function adds a + for each
// further run of the chain.
func (w *witness) flow(f *Flow, input string, hang func(key, step string)) (string, error) {
	key := strings.TrimRight(input, "+")
	n := len(input) - len(key)
	op := func(ctx context.Context) (string, error) {
		t, _ := TaskOf(ctx)
		return w.attempt(key, t.Step, t.Total, t.Spent, func() { hang(key, strings.TrimRight(t.Step, "0")) })
	}
	name := func(op string) string { return fmt.Sprint(op, n) }
	if _, err := Do(f, name("a"), op, Policy(crashOps["a"]), MaxLost(50)); err != nil {
		return "", err
	}
	each := func(ctx context.Context, _ int) (string, error) { return op(ctx) }
	if _, err := Map(f, name("m"), []int{1, 2, 3}, each, Policy(crashOps["m"]), MaxLost(50), Parallel(2)); err != nil {
		return "", err
	}
	if err := Sleep(f, name("rest"), crashSleep); err != nil {
		return "", err
	}
	last, err := Do(f, name("z"), op, Policy(crashOps["z"]), MaxLost(50))
	if err != nil || n+1 == crashChain(key) {
		return last, err
	}
	return "", Again(f, input+"+")
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
		if os.Getenv("CRASH_HANG") != "" && step == crashSteps[0].name && key == crashKey(to-1) {
			fmt.Println("hangs")
			select {}
		}
	}
	seen := &witness{file, new(power)}
	w := newCrashWorkflows(seen, spent, hang)
	driver := newCrashDriver(seen, w)
	cfg := Config{
		Dir: filepath.Join(dir, "data"), Workflows: w.all(), Concurrency: 32, snapshotAfter: 30_000,
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
	for i := range from {
		if isFamily(i) {
			go driver.drive(context.Background(), e, i)
		}
	}
	for i := from; i < to; i++ {
		run := must(w.start(context.Background(), e, i))
		fmt.Println("ack", i, run.ID)
		if isFamily(i) {
			go driver.drive(context.Background(), e, i)
		}
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
		if err := w.encode(context.Background(), e, enc, i); err != nil {
			panic(err)
		}
	}
	for len(openRuns(must(e.Stats(context.Background())), "told")) > 0 {
		time.Sleep(time.Millisecond)
	}
	if err := w.countMembers(context.Background(), e); err != nil {
		panic(err)
	}
	if err := e.Close(context.Background()); err != nil {
		panic(err)
	}
	_ = out.Close()
}

// openRuns returns the states of the workflow's runs that have not ended.
func openRuns(s Stats, workflow string) map[string]int {
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
	acked, rebuilds := map[int]string{}, 0
	for kill := range *crashKills {
		to := *crashRuns * (kill + 1) / (*crashKills + 1)
		after := time.Duration(random.IntN(400)+20) * time.Millisecond
		if kill%2 == 0 { // while it is busy for certain
			after = time.Duration(random.IntN(3000)+1) * time.Microsecond
		}
		rebuilds += crash(t, dir, acked, to, after, kill == *crashKills-1, env)
	}
	rebuilds += crash(t, dir, acked, *crashRuns, 0, false, env)
	t.Logf("the view was made anew %d times", rebuilds)
	judge(t, dir, acked, *crashRuns)
}

// crash starts the process and kills it some time after it has acknowledged a start, or has none
// to make; a time of 0 lets the process end by itself. With hang it is killed some time after an
// attempt hangs, so that at least one attempt is lost. It returns how often the process made the view
// anew.
//
// real clock: the delay varies where the process is killed; every place is right
func crash(t *testing.T, dir string, acked map[int]string, to int, after time.Duration, hang bool, env []string) (rebuilds int) {
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
	return strings.Count(stderr.String(), "is rebuilt from the log")
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
	chains := map[string][]*Info{}  // runs of flows by key
	members := map[string][]*Info{} // children by parent
	var families []*Info
	for dec := json.NewDecoder(file); ; total++ {
		var i Info
		if err := dec.Decode(&i); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if i.Workflow == "crash-flow" {
			if chains[i.Key] = append(chains[i.Key], &i); len(chains[i.Key]) > 1 {
				total--
			}
			continue
		}
		if i.Workflow == crashMember {
			members[i.Parent] = append(members[i.Parent], &i)
			total--
			continue
		}
		n := must(strconv.Atoi(strings.TrimPrefix(i.Key, "key-")))
		if acked[n] != i.ID {
			t.Errorf("%s is run %s, acknowledged was %q", i.Key, i.ID, acked[n])
		}
		if i.Workflow == crashFamily {
			families = append(families, &i)
			if list := slices.Collect(maps.Values(told[i.Key])); !slices.Equal(list, []string{i.State}) {
				t.Errorf("%s is %s, told of as %q", i.Key, i.State, list)
			}
			continue
		}
		lost += judgeRun(t, &i, seen[i.Key])
		if list := slices.Collect(maps.Values(told[i.Key])); !slices.Equal(list, []string{i.State}) {
			t.Errorf("%s is %s, told of as %q", i.Key, i.State, list)
		}
	}
	for key, chain := range chains {
		last, n := judgeChain(t, key, chain, seen[key])
		lost += n
		// A start that is repeated after a crash finds the run of the chain that has the key then.
		id := acked[must(strconv.Atoi(strings.TrimPrefix(key, "key-")))]
		if !slices.ContainsFunc(chain, func(i *Info) bool { return i.ID == id }) {
			t.Errorf("%s is run %s, acknowledged was %q", key, chain[0].ID, id)
		}
		if list := slices.Collect(maps.Values(told[key])); !slices.Equal(list, []string{last.State}) {
			t.Errorf("%s is %s, told of as %q", key, last.State, list)
		}
	}
	children := 0
	for _, i := range families {
		lost += judgeFamily(t, i, members[i.ID], seen[i.Key])
		children += len(members[i.ID])
	}
	if total != runs {
		t.Errorf("%d runs, want %d", total, runs)
	}
	t.Logf("%d runs, %d attempts lost; %d families with %d children", total, lost, len(families), children)
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
		if f[1] == "sent" {
			continue // an event of a family
		}
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
		k, l := judgeAttempts(t, i.Key, &s, p, seen)
		known, lost = known+k, lost+l
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

// judgeAttempts judges the attempts of a step or an operation, and returns how many of them the
// witness knows, and how many were lost.
func judgeAttempts(t *testing.T, key string, s *StepInfo, p retry.Policy, seen map[deed]testimony) (known, lost int) {
	t.Helper()
	counted, ended := 0, int64(0)
	var wait time.Duration
	for n, a := range s.Attempts {
		d := deed{s.Name, a.Number}
		w, there := seen[d]
		if a.Number != n+1 {
			t.Errorf("%s: attempt %d of step %s comes as number %d", key, a.Number, s.Name, n+1)
		}
		if there {
			known++
			if least := ended + int64(wait); w.begin < least {
				t.Errorf("%s: attempt %d of step %s began %v early", key, a.Number, s.Name, time.Duration(least-w.begin))
			}
		}
		switch a.Outcome {
		case "succeeded", "failed":
			if want := map[bool]string{true: "ok"}[a.Outcome == "succeeded"]; !there || w.end == 0 || (want == "ok") != (w.fate == "ok") {
				t.Errorf("%s: attempt %d of step %s is %s, the witness saw %+v", key, a.Number, s.Name, a.Outcome, w)
			}
			counted++
		case "lost":
			lost++
		default:
			t.Errorf("%s: attempt %d of step %s is %s", key, a.Number, s.Name, a.Outcome)
		}
		// The handler writes to the witness before the engine records the end.
		ended, wait = w.end, 0
		if a.Wait != nil {
			wait = a.Wait.Delay
			if a.Outcome == "failed" && a.Error == "after" && wait < 30*time.Millisecond {
				t.Errorf("%s: the server's 30ms became %v", key, wait)
			}
		}
	}
	if counted > p.Attempts {
		t.Errorf("%s: step %s has %d attempts that count, the policy allows %d", key, s.Name, counted, p.Attempts)
	}
	return known, lost
}

// judgeChain judges the runs of a flow, and returns the last one and how many attempts were lost.
func judgeChain(t *testing.T, key string, chain []*Info, seen map[deed]testimony) (last *Info, lost int) {
	t.Helper()
	known, dead := 0, false
	for n, i := range chain {
		if last = i; dead {
			t.Errorf("%s: run %d of the chain follows a dead one", key, n)
		}
		next := ""
		if n+1 < len(chain) {
			next = chain[n+1].ID
		}
		if i.Key != key || i.ContinuedBy != next {
			t.Errorf("%s: run %d of the chain has the key %q, and is continued by %q, want %q", key, n, i.Key, i.ContinuedBy, next)
		}
		k, l, isDead := judgeFlow(t, i, n, seen)
		known, lost, dead = known+k, lost+l, isDead
	}
	if !dead && len(chain) != crashChain(key) {
		t.Errorf("%s: the chain has %d runs, want %d", key, len(chain), crashChain(key))
	}
	if want := fmt.Sprintf("%q", fmt.Sprint(key, "z", len(chain)-1)); !dead && string(last.Output) != want {
		t.Errorf("%s: output %s, want %s", key, last.Output, want)
	}
	if known != len(seen) {
		t.Errorf("%s: the witness saw %d attempts, the history has %d of them", key, len(seen), known)
	}
	return last, lost
}

// judgeFlow judges the n-th run of a chain.
func judgeFlow(t *testing.T, i *Info, n int, seen map[deed]testimony) (known, lost int, dead bool) {
	t.Helper()
	mapped := int64(0) // end of the last operation before the sleep
	for k := range i.Steps {
		s := &i.Steps[k]
		if s.Kind != "do" && s.Kind != "item" {
			continue
		}
		p := must(retry.Parse(crashOps[s.Name[:1]]))
		k, l := judgeAttempts(t, i.Key, s, p, seen)
		known, lost = known+k, lost+l
		succeeded := 0
		for _, a := range s.Attempts {
			if a.Outcome == "succeeded" {
				succeeded++
				mapped = max(mapped, map[bool]int64{true: seen[deed{s.Name, a.Number}].end}[s.Kind == "item"])
			}
		}
		if want := map[string]int{"succeeded": 1}[s.Status]; succeeded != want || s.Status != "succeeded" && s.Status != "failed" {
			t.Errorf("%s: operation %s is %s, and has succeeded %d times", i.Key, s.Name, s.Status, succeeded)
		}
		dead = dead || s.Status == "failed"
	}
	if z := seen[deed{fmt.Sprint("z", n), 1}]; z.begin != 0 && z.begin < mapped+int64(crashSleep) {
		t.Errorf("%s: the sleep of run %d of the chain was %v too short", i.Key, n, time.Duration(mapped+int64(crashSleep)-z.begin))
	}
	if want := map[bool]string{true: "dead", false: "succeeded"}[dead]; i.State != want {
		t.Errorf("%s is %s, its operations say %s: %s", i.Key, i.State, want, i.Error)
	}
	return known, lost, dead
}
