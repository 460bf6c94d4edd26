//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"

	"github.com/tideover/tideover/sim"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// quickSim is a scenario that runs in milliseconds.
const quickSim = `name: quick
duration: 5s
drain: 5s
clients: {count: 20, arrivals: open, rate: 40}
services:
  - name: shop
    workers: 4
    latency: {distribution: exponential, mean: 20ms}
failures:
  - {kind: outage, from: 1s, until: 2s}
policies:
  naive: fixed(100ms) attempts=3
  careful: exponential(100ms..1s) jitter=full attempts=3
`

// longSim is a scenario that takes hours.
const longSim = `duration: 1h
clients: {count: 1000, arrivals: open, rate: 200000}
services: [{name: shop, workers: 10000, latency: {distribution: constant, mean: 20ms}}]
bucket: 1s
policies: [default, http]
`

// scenarioFile writes a scenario to a file, and returns its path.
func scenarioFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestSimLists(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, "sim")
	clitest.WantCode(t, got, 0)
	n := 0
	for name, about := range sim.Presets {
		n++
		clitest.WantIn(t, "list", got.Out, name)
		clitest.WantIn(t, "list", strings.Join(strings.Fields(got.Out), " "), about)
	}
	if n < 8 {
		t.Errorf("there are %d scenarios", n)
	}
}

func TestSimShowsAFileToStartFrom(t *testing.T) {
	t.Parallel()
	for name := range sim.Presets {
		shown := clitest.Run(t, "sim", "--show", name)
		clitest.WantCode(t, shown, 0)
		again := clitest.Run(t, "sim", "--show", scenarioFile(t, shown.Out))
		clitest.WantCode(t, again, 0)
		if again.Out != shown.Out {
			t.Errorf("%s: --show of what --show printed is\n%s\nwant\n%s", name, again.Out, shown.Out)
		}
	}
	got := clitest.Run(t, "sim", "--show", "herd", "--policy", "mine=http")
	clitest.WantIn(t, "output", got.Out, "policies:\n  mine: exponential(1s..32s) jitter=20% attempts=4\n")
}

func TestSimRuns(t *testing.T) {
	t.Parallel()
	file := scenarioFile(t, quickSim)
	cmd, _ := clitest.Command(t, "sim", file, "--policy", "fast=fixed(1ms) attempts=2", "--seeds", "3")
	cmd.Env = append(cmd.Env, "COLUMNS=110", "LC_ALL=C.UTF-8")
	got := clitest.Finish(t, cmd)
	clitest.WantCode(t, got, 0)
	for _, part := range []string{
		"quick", "From 1s to 2s, shop rejects every call.", "A  naive", "B  careful", "C  fast", "success", "peak in 100ms", "±", "░", "█",
		"Means over 3 seeds from 0 on", "outage, from 1s to 2s",
	} {
		clitest.WantIn(t, "output", got.Out, part)
	}
	if withoutProgress(got.Stderr) != "" || strings.Contains(got.Out, "\x1b") {
		t.Errorf("a pipe gets stderr %q, and output %q", got.Stderr, got.Out)
	}
	for line := range strings.Lines(got.Out) {
		if n := utf8.RuneCountInString(line); n > 111 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	plain := clitest.Run(t, "sim", file, "--ascii")
	if i := strings.IndexFunc(plain.Out, func(r rune) bool { return r > 0x7e }); i >= 0 || plain.Code != 0 {
		t.Errorf("--ascii prints %q", plain.Out)
	}
}

// The same seed gives the same output, byte for byte, with any number of workers.
func TestSimIsTheSameEveryTime(t *testing.T) {
	t.Parallel()
	file := scenarioFile(t, quickSim)
	args := []string{"sim", file, "--json", "--seed", "7", "--seeds", "4"}
	first := clitest.Run(t, append(args, "--workers", "1")...)
	clitest.WantCode(t, first, 0)
	for _, workers := range []string{"1", "2", "7", "0"} {
		if got := clitest.Run(t, append(args, "--workers", workers)...); got.Out != first.Out {
			t.Errorf("--workers %s prints something else", workers)
		}
	}
	if got := clitest.Run(t, "sim", file, "--json", "--seed", "8", "--seeds", "4"); got.Out == first.Out {
		t.Error("another seed prints the same")
	}
}

// simKeys are the keys of --json, which must not change.
var simKeys = []string{
	"amplification", "bucket_s", "calls", "calls_per_client", "cdf", "events", "fairness", "give_up_s", "goodput", "half", "hedges", "last_s", "mean", "name", "outage_calls", "outage_success",
	"never_recovers", "offered", "p50_s", "p999_s", "p99_s", "peak", "peak_ratio", "peak_retries", "policy", "recovery_s", "results", "s", "scenario", "seed", "seeds",
	"series", "share", "success", "versus", "waiting", "wasted", "load", "attempts", "all", "unfinished", "gave_up",
}

func TestSimJSON(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, "sim", scenarioFile(t, quickSim), "--json")
	clitest.WantCode(t, got, 0)
	var report sim.Report
	if err := json.Unmarshal([]byte(got.Out), &report); err != nil {
		t.Fatal(err)
	}
	if report.Scenario != "quick" || report.Seeds != 5 || len(report.Results) != 2 || report.Results[1].Name != "careful" || report.Results[1].Versus == nil {
		t.Errorf("report = %+v", report)
	}
	keys := map[string]bool{}
	d := json.NewDecoder(strings.NewReader(got.Out))
	var all any
	if err := d.Decode(&all); err != nil {
		t.Fatal(err)
	}
	collectKeys(all, keys)
	for _, k := range simKeys {
		if !keys[k] {
			t.Errorf("--json has no %s", k)
		}
	}
	for k := range keys {
		if !slices.Contains(simKeys, k) {
			t.Errorf("--json has %s, which the test does not know", k)
		}
	}
}

func collectKeys(v any, keys map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			keys[k] = true
			if k != "gave_up" { // the keys of gave_up are reasons, which may change
				collectKeys(e, keys)
			}
		}
	case []any:
		for _, e := range v {
			collectKeys(e, keys)
		}
	}
}

func TestSimWritesFiles(t *testing.T) {
	t.Parallel()
	file, dir := scenarioFile(t, quickSim), t.TempDir()
	svg, html := filepath.Join(dir, "x.svg"), filepath.Join(dir, "x.html")
	got := clitest.Run(t, "sim", file, "--policy", "it's=http", "--svg", svg, "--html", html)
	clitest.WantCode(t, got, CodeOwn) // the name of a policy can't contain an apostrophe
	got = clitest.Run(t, "sim", file, "--policy", "more=http attempts=2", "--svg", svg, "--html", html)
	clitest.WantCode(t, got, 0)
	clitest.WantIn(t, "output", got.Out, "success")
	data, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(data)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(html)
	if err != nil {
		t.Fatal(err)
	}
	clitest.WantIn(t, "page", string(page), "tideover sim "+file+" --policy &#39;more=http attempts=2&#39; --seed 0 --seeds 5")
	out := clitest.Run(t, "sim", file, "--policy", "more=http attempts=2", "--svg", "-")
	if out.Out != string(data) {
		t.Error("--svg - prints something else than --svg FILE writes")
	}
	again := clitest.Run(t, "sim", file, "--policy", "more=http attempts=2", "--seed", "0", "--seeds", "5", "--html", html)
	clitest.WantCode(t, again, 0)
	if second, _ := os.ReadFile(html); !bytes.Equal(second, page) {
		t.Error("the command on the page makes another page")
	}
	nowhere := clitest.Run(t, "sim", file, "--html", filepath.Join(dir, "no", "x.html"))
	clitest.WantCode(t, nowhere, 125)
	if nowhere.Out != "" {
		t.Error("it was run for a page that has no place")
	}
	folder := clitest.Run(t, "sim", file, "--svg", dir)
	clitest.WantCode(t, folder, 125)
	clitest.WantIn(t, "output", folder.Out, "success") // the results are printed although the file can't be written
	clitest.WantIn(t, "stderr", folder.Stderr, "--svg: ")
}

func TestSimRefuses(t *testing.T) {
	t.Parallel()
	file := scenarioFile(t, quickSim)
	bad := scenarioFile(t, strings.NewReplacer("count: 20", "count: 0", "workers: 4", "workrs: 4", "until: 2s", "until: 1s", "naive: fixed", "naive: fxed").Replace(quickSim))
	for _, tt := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"a scenario that is not possible, with all lines", []string{bad}, CodeOwn, []string{
			"mine.yaml:4:18: clients.count: 0 is not between", `mine.yaml:7:5: services[0]: key "workrs" is unknown; did you mean "workers"?`,
			"mine.yaml:10:37: failures[0].until: 1s is not after", "mine.yaml:12:10: policies.naive:", "> 12 |   naive: fxed(100ms)",
		}},
		{"no such scenario", []string{"herdd"}, 125, []string{`unknown scenario "herdd"; did you mean "herd"?`}},
		{"a file that does not exist", []string{"herdd.yaml"}, 125, []string{"scenario herdd.yaml: no such file"}},
		{"a name that is like none", []string{"xyzzyxyzzy"}, 125, []string{`unknown scenario "xyzzyxyzzy": want one of `, "; or name a file"}},
		{"a name that is like a part of the message", []string{"or-a-file"}, 125, []string{`unknown scenario "or-a-file": want one of `}},
		{"a folder", []string{t.TempDir()}, 125, []string{"is a folder"}},
		{"two scenarios", []string{"herd", "outage"}, 125, []string{`"outage" is a second`}},
		{"a policy without its flag", []string{"herd", "http"}, 125, []string{"write --policy before it"}},
		{"a policy that is none", []string{"herd", "-p", "nope"}, CodeOwn, []string{`"nope" is neither a preset`}},
		{"two that are none", []string{"herd", "-p", "nope", "-p", "http atempts=3"}, CodeOwn, []string{`"nope"`, `"atempts"`}},
		{"a policy that is there", []string{file, "-p", "naive=http"}, CodeOwn, []string{`--policy: policy "naive" is given twice: give one of them another name with NAME=POLICY`}},
		{"a policy twice", []string{"outage", "-p", "http", "-p", " http"}, CodeOwn, []string{`--policy: policy "http" is given twice`}},
		{"a policy that can't be simulated", []string{"herd", "-p", "http reset-after=1m"}, CodeOwn, []string{"reset-after"}},
		{"a policy that writers can't have", []string{"contention", "-p", "http attempt-timeout=1s"}, CodeOwn, []string{"attempt-timeout"}},
		{"no seeds", []string{"herd", "--seeds", "0"}, 125, []string{"--seeds: 0 is not"}},
		{"too many seeds", []string{"herd", "--seeds", "1000000"}, 125, []string{"tideover: --seeds: 1000000 is not between 1 and 100000\n"}},
		{"fewer workers than none", []string{"herd", "--workers", "-1"}, 125, []string{"tideover: --workers: -1 is not between 0 and 1000000\n"}},
		{"more than fits into the memory", []string{scenarioFile(t, strings.Replace(quickSim, "count: 20, arrivals: open, rate: 40", "count: 20000000, arrivals: herd", 1))}, CodeOwn, []string{"mine.yaml:4:18: clients.count: 20000000 calls at once take ", "at most 4.0 GiB"}},
		{"no scenario", []string{"--json"}, 125, []string{"--json needs a scenario"}},
		{"two outputs", []string{"herd", "--json", "--svg", "-"}, 125, []string{"both write to standard output"}},
		{"plain characters of nothing", []string{"herd", "--json", "--ascii"}, 125, []string{"--ascii has no effect"}},
		{"a page on standard output", []string{"herd", "--html", "-"}, 125, []string{"--html"}},
		{"no name for a file", []string{"herd", "--svg", ""}, 125, []string{"--svg: the value is empty"}},
		{"seeds of nothing", []string{"herd", "--show", "--seeds", "3"}, 125, []string{"--seeds has no effect: --show runs nothing"}},
		{"no such flag", []string{"herd", "--nope"}, 125, []string{"unknown flag"}},
	} {
		got := clitest.Run(t, append([]string{"sim"}, tt.args...)...)
		if got.Code != tt.code || got.Out != "" {
			t.Errorf("%s: exit code %d, want %d; stdout %q, stderr %q", tt.name, got.Code, tt.code, got.Out, got.Stderr)
		}
		for _, part := range tt.want {
			clitest.WantIn(t, tt.name, got.Stderr, part)
		}
	}
}

// The progress is shown on a terminal, and Ctrl-C ends the run.
func TestSimStopsAtOnce(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "x.html")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		terminal, end, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		cmd, _ := clitest.Command(t, "sim", scenarioFile(t, longSim), "--seeds", "3", "--html", page)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, end
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = end.Close()
		said := readUntil(t, terminal, "simulated 0 of 6 runs")
		_ = cmd.Process.Signal(sig)
		rest, _ := io.ReadAll(terminal) // until the other end is closed
		_ = cmd.Wait()
		_ = terminal.Close()
		if want := 128 + int(sig); cmd.ProcessState.ExitCode() != want {
			t.Errorf("%v: exit code %d, want %d", sig, cmd.ProcessState.ExitCode(), want)
		}
		clitest.WantIn(t, "stderr", said+string(rest), "\r\x1b[Ktideover: interrupted after 0 of 6 runs: nothing was written")
		if _, err := os.Stat(page); err == nil || out.Len() > 0 {
			t.Errorf("%v: something was written: %q", sig, out.String())
		}
	}
}

// readUntil reads until the text appears.
func readUntil(t *testing.T, r io.Reader, text string) string {
	t.Helper()
	var all []byte
	for buf := make([]byte, 1024); !bytes.Contains(all, []byte(text)); {
		n, err := r.Read(buf)
		if all = append(all, buf[:n]...); err != nil {
			t.Fatalf("read %q: %v", all, err)
		}
	}
	return string(all)
}

func TestSimOnATerminal(t *testing.T) {
	t.Parallel()
	file := scenarioFile(t, quickSim)
	for _, tt := range []struct {
		env    string
		colour bool
	}{{"X=", true}, {"NO_COLOR=1", false}, {"TERM=dumb", false}} {
		cmd, _ := clitest.Command(t, "sim", file, "--seeds", "2")
		cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=", "LC_ALL=C.UTF-8", tt.env)
		terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 64})
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(terminal) // until the other end is closed
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		_ = terminal.Close()
		if got := strings.Contains(string(data), "\x1b[1;36m"); got != tt.colour {
			t.Errorf("%s: colours are %v, want %v", tt.env, got, tt.colour)
		}
		if tt.colour {
			continue
		}
		for line := range strings.Lines(string(data)) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\r\n")); n > 64 {
				t.Errorf("%d columns on a terminal of 64: %q", n, line)
			}
		}
	}
}

func TestSimHelp(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, "sim", "--help")
	clitest.WantCode(t, got, 0)
	for _, part := range []string{"Exit codes:", "  125    ", "130: Ctrl-C", "Examples:", "tideover sim outage", "--policy", "metastable", "docs/sim.md"} {
		clitest.WantIn(t, "help", got.Out, part)
	}
	for line := range strings.Lines(got.Out) {
		if flag := strings.HasPrefix(line, "  "); !flag && utf8.RuneCountInString(line) > 84 || strings.Contains(line, "%!") || strings.Contains(line, "SCENARIOS") {
			t.Errorf("help has the line %q", line)
		}
	}
}

func TestSimCompletes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"sim", ""}, []string{"herd\t", "metastable\t"}},
		{[]string{"sim", "herd", "--policy", ""}, []string{"http\t", "contention\t"}},
	} {
		got := clitest.Run(t, append([]string{"__complete"}, tt.args...)...)
		clitest.WantCode(t, got, 0)
		for _, part := range tt.want {
			clitest.WantIn(t, strings.Join(tt.args, " "), got.Out, part)
		}
	}
}

func TestSimDoesNotOverwriteItsScenario(t *testing.T) {
	file := scenarioFile(t, clitest.Run(t, "sim", "herd", "--show").Out)
	for _, flag := range []string{"--html", "--svg"} {
		got := clitest.Run(t, "sim", file, flag, file)
		if got.Code != CodeOwn || !strings.Contains(got.Stderr, "is the scenario file: name another file") {
			t.Errorf("%s: %+v", flag, got)
		}
	}
	if got := clitest.Run(t, "sim", file, "--show"); got.Code != 0 {
		t.Errorf("the scenario afterwards: %+v", got)
	}
}
