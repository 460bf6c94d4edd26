//go:build unix

package cli

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/tideover/tideover/retry"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// planned has the fields of plan --json that the tests read.
type planned struct {
	Name     string `json:"name"`
	Policy   string `json:"policy"`
	Attempts int    `json:"attempts"`
	Retries  []struct {
		N      int            `json:"n"`
		Delay  time.Duration  `json:"delay_ns"`
		Low    time.Duration  `json:"low_ns"`
		High   time.Duration  `json:"high_ns"`
		Sum    time.Duration  `json:"sum_ns"`
		Sample *time.Duration `json:"sample_ns"`
	} `json:"retries"`
	Total     *time.Duration `json:"total_ns"`
	Low       *time.Duration `json:"low_total_ns"`
	High      *time.Duration `json:"high_total_ns"`
	WorstCase *time.Duration `json:"worst_case_ns"`
}

// planJSON runs plan --json and returns its output.
func planJSON(t *testing.T, args ...string) []planned {
	t.Helper()
	var out struct {
		Plans []planned `json:"plans"`
	}
	got := clitest.Run(t, append([]string{"plan", "--json"}, args...)...)
	clitest.WantCode(t, got, 0)
	if err := json.Unmarshal([]byte(got.Out), &out); err != nil {
		t.Fatalf("plan --json %q: %v in %q", args, err, got.Out)
	}
	return out.Plans
}

// each returns the durations in a unit: each(time.Second, 1, 2.5).
func each(unit time.Duration, ns ...float64) (ds []time.Duration) {
	for _, n := range ns {
		ds = append(ds, time.Duration(n*float64(unit)))
	}
	return ds
}

// The delays, ranges and sums of each family and of several presets are as specified.
func TestPlanNumbers(t *testing.T) {
	t.Parallel()
	const ms, s = time.Millisecond, time.Second
	for _, tt := range []struct {
		policy           string
		text             string
		delays           []time.Duration
		lows, highs      []time.Duration
		total, low, high time.Duration
		worst            time.Duration
	}{
		{"default", "exponential(50ms..20s) jitter=full attempts=3 total-timeout=30s throttle-base=1s budget=refund(1,0.1,10)",
			each(ms, 50, 100), each(ms, 0, 0), each(ms, 50, 100), 150 * ms, 0, 150 * ms, 30 * s},
		{"daemon", "exponential(30s..5m) jitter=10% attempts=6",
			each(s, 30, 60, 120, 240, 300), each(s, 27, 54, 108, 216, 270), each(s, 33, 66, 132, 264, 300), 750 * s, 675 * s, 795 * s, 0},
		{"workflow", "fixed(1s..5m) attempts=3",
			each(s, 1, 1), each(s, 1, 1), each(s, 1, 1), 2 * s, 2 * s, 2 * s, 0},
		{"workflow-api", "exponential(1s..1m) jitter=50% attempts=5",
			each(s, 1, 2, 4, 8), each(s, 0.5, 1, 2, 4), each(s, 1.5, 3, 6, 12), 15 * s, 7500 * ms, 22500 * ms, 0},
		{"contention", "exponential(10ms..1s) max-doublings=6 jitter=+50% attempts=7",
			each(ms, 10, 20, 40, 80, 160, 320), each(ms, 10, 20, 40, 80, 160, 320), each(ms, 15, 30, 60, 120, 240, 480), 630 * ms, 630 * ms, 945 * ms, 0},
		{"contention attempts=8", "exponential(10ms..1s) max-doublings=6 jitter=+50% attempts=8",
			each(ms, 10, 20, 40, 80, 160, 320, 640), each(ms, 10, 20, 40, 80, 160, 320, 640), each(ms, 15, 30, 60, 120, 240, 480, 960), 1270 * ms, 1270 * ms, 1905 * ms, 0},
		{"http", "exponential(1s..32s) jitter=20% attempts=4",
			each(s, 1, 2, 4), each(s, 0.8, 1.6, 3.2), each(s, 1.2, 2.4, 4.8), 7 * s, 5600 * ms, 8400 * ms, 0},
		{"http attempts=7", "exponential(1s..32s) jitter=20% attempts=7",
			each(s, 1, 2, 4, 8, 16, 32), each(s, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6), each(s, 1.2, 2.4, 4.8, 9.6, 19.2, 32), 63 * s, 50400 * ms, 69200 * ms, 0},
		{"http attempt-timeout=30s", "exponential(1s..32s) jitter=20% attempts=4 attempt-timeout=30s",
			each(s, 1, 2, 4), each(s, 0.8, 1.6, 3.2), each(s, 1.2, 2.4, 4.8), 7 * s, 5600 * ms, 8400 * ms, 128400 * ms},
		{"http-conservative", "exponential(500ms..1m) jitter=20% attempts=6",
			each(s, 0.5, 1, 2, 4, 8), each(s, 0.4, 0.8, 1.6, 3.2, 6.4), each(s, 0.6, 1.2, 2.4, 4.8, 9.6), 15500 * ms, 12400 * ms, 18600 * ms, 0},
		{"http-interactive", "exponential(500ms..8s) jitter=20% attempts=3",
			each(s, 0.5, 1), each(s, 0.4, 0.8), each(s, 0.6, 1.2), 1500 * ms, 1200 * ms, 1800 * ms, 0},
		{"http-batch", "exponential(2s..32s) jitter=20% attempts=4",
			each(s, 2, 4, 8), each(s, 1.6, 3.2, 6.4), each(s, 2.4, 4.8, 9.6), 14 * s, 11200 * ms, 16800 * ms, 0},
		{"task", "exponential(1s..30s) attempts=4",
			each(s, 1, 2, 4), each(s, 1, 2, 4), each(s, 1, 2, 4), 7 * s, 7 * s, 7 * s, 0},
		{"task attempts=7", "exponential(1s..30s) attempts=7",
			each(s, 1, 2, 4, 8, 16, 30), each(s, 1, 2, 4, 8, 16, 30), each(s, 1, 2, 4, 8, 16, 30), 61 * s, 61 * s, 61 * s, 0},
	} {
		t.Run(tt.policy, func(t *testing.T) {
			t.Parallel()
			p := planJSON(t, tt.policy)[0]
			var delays, lows, highs []time.Duration
			for i, r := range p.Retries {
				if r.N != i+1 {
					t.Errorf("retry %d has n=%d", i+1, r.N)
				}
				delays, lows, highs = append(delays, r.Delay), append(lows, r.Low), append(highs, r.High)
			}
			if p.Policy != tt.text || p.Name != tt.policy || p.Attempts != len(tt.delays)+1 {
				t.Errorf("policy %q, name %q, attempts %d; want %q, %q, %d", p.Policy, p.Name, p.Attempts, tt.text, tt.policy, len(tt.delays)+1)
			}
			for _, c := range []struct {
				what      string
				got, want []time.Duration
			}{
				{"delay_ns", delays, tt.delays},
				{"low_ns", lows, tt.lows},
				{"high_ns", highs, tt.highs},
				{"totals", []time.Duration{*p.Total, *p.Low, *p.High}, []time.Duration{tt.total, tt.low, tt.high}},
			} {
				if !slices.Equal(c.got, c.want) {
					t.Errorf("%s = %v, want %v", c.what, c.got, c.want)
				}
			}
			if p.Retries[len(p.Retries)-1].Sum != tt.total {
				t.Errorf("last sum_ns = %v, want %v", p.Retries[len(p.Retries)-1].Sum, tt.total)
			}
			if (p.WorstCase == nil) != (tt.worst == 0) || p.WorstCase != nil && *p.WorstCase != tt.worst {
				t.Errorf("worst_case_ns = %v, want %v", p.WorstCase, tt.worst)
			}
		})
	}
}

func TestPlanJSONOfAllPresets(t *testing.T) {
	t.Parallel()
	var got, want []string
	for _, p := range planJSON(t) {
		got = append(got, p.Name)
		if _, err := retry.Parse(p.Policy); err != nil {
			t.Error(err)
		}
	}
	for name := range retry.Presets {
		want = append(want, name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("plan --json has %q, want %q", got, want)
	}
}

func TestPlanJSONWithoutLimit(t *testing.T) {
	t.Parallel()
	p := planJSON(t, "fixed(1s) attempts=unlimited", "--retries", "3")[0]
	if p.Attempts != -1 || len(p.Retries) != 3 || p.Total != nil || p.WorstCase != nil {
		t.Errorf("plan of unlimited attempts = %+v", p)
	}
	got := clitest.Run(t, "plan", "--json", "fixed(1s)")
	clitest.WantIn(t, "JSON of a policy without retries", got.Out, `"retries": []`)
}

func TestPlanSeed(t *testing.T) {
	t.Parallel()
	a, b := planJSON(t, "http", "--seed", "7")[0], planJSON(t, "http", "--seed", "7")[0]
	for i, r := range a.Retries {
		if r.Sample == nil || *r.Sample != *b.Retries[i].Sample || *r.Sample < r.Low || *r.Sample > r.High {
			t.Errorf("sample of retry %d is not the same twice, or outside its band", r.N)
		}
	}
	if s := planJSON(t, "http")[0].Retries[0].Sample; s != nil {
		t.Errorf("sample without --seed: %v", *s)
	}
}

func TestPlanRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	svg := filepath.Join(dir, "plan.svg")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"an unknown policy", []string{"nope"}, `"nope" is neither a preset`},
		{"an unknown policy beside a good one", []string{"http", "nope"}, `"nope" is neither a preset`},
		{"every bad policy at once, first", []string{"nope", "never"}, `"nope"`},
		{"every bad policy at once, second", []string{"nope", "never"}, `"never"`},
		{"a bad policy with a drawing", []string{"nope", "--svg", svg}, `"nope"`},
		{"an empty policy", []string{""}, "empty"},
		{"keys without quotes", []string{"http", "attempts=6"}, `in quotes: "http attempts=6"`},
		{"no retries to list", []string{"http", "--retries", "0"}, "--retries: 0 is not between 1 and"},
		{"too many retries to list", []string{"http", "--retries", "1000000000"}, "--retries: 1000000000"},
		{"a seed that is no number", []string{"http", "--seed", "x"}, "--seed"},
		{"a seed for the list of presets", []string{"--seed", "1"}, "--seed needs a policy"},
		{"retries for the list of presets", []string{"--retries", "1"}, "--retries needs a policy"},
		{"a scale for the list of presets", []string{"--log"}, "--log needs a policy"},
		{"two things on standard output", []string{"http", "--json", "--svg", "-"}, "both write to standard output"},
		{"plain characters in JSON", []string{"http", "--json", "--ascii"}, "--ascii"},
		{"plain characters in a drawing", []string{"http", "--svg", "-", "--ascii"}, "--ascii"},
		{"a scale in JSON", []string{"http", "--json", "--log"}, "--log"},
		{"a drawing without a name", []string{"http", "--svg", ""}, "--svg: the value is empty"},
		{"a drawing that can't be written", []string{"http", "--svg", filepath.Join(dir, "none", "x")}, "none/x: no such file or directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := clitest.Run(t, append([]string{"plan"}, tt.args...)...)
			clitest.WantCode(t, got, CodeOwn)
			clitest.WantIn(t, "stderr", got.Stderr, tt.want)
			if got.Out != "" {
				t.Errorf("stdout = %q, want nothing", got.Out)
			}
			if _, err := os.Stat(svg); err == nil {
				t.Errorf("a drawing was written")
			}
		})
	}
}

func TestPlanText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		args []string
		env  []string
		want []string
		not  []string
	}{
		{"the presets", nil, nil, []string{"contention", "writers that collide on one thing", "exponential(10ms..1s) max-doublings=6"}, nil},
		{"one policy", []string{"http"}, []string{"LC_ALL=C.UTF-8"}, []string{"5.6s..8.4s", "━", "3 retries wait 7s in all"}, []string{"\x1b"}},
		{"the worst case", []string{"http attempt-timeout=30s"}, nil, []string{"2m8.4s in all"}, nil},
		{"ASCII when asked", []string{"http", "--ascii"}, []string{"LC_ALL=C.UTF-8"}, []string{"--|--"}, []string{"━"}},
		{"ASCII by locale", []string{"http"}, []string{"LC_ALL=C", "LANG=en_US.UTF-8"}, []string{"--|--"}, []string{"━"}},
		{"UTF-8 by the lesser variable", []string{"http"}, []string{"LC_ALL=", "LC_CTYPE=", "LANG=de_DE.utf8"}, []string{"━"}, []string{"--|--"}},
		{"a logarithmic scale", []string{"http", "--log"}, nil, []string{"logarithmic from 400ms to 4.8s"}, nil},
		{"side by side", []string{"http", "task"}, []string{"COLUMNS=100"}, []string{"A  http  ", "|  B  task"}, nil},
		{"one below the other", []string{"http", "contention"}, []string{"COLUMNS=50"}, []string{"\n       B  contention\n"}, nil},
		{"no retry", []string{"fixed(1s)"}, nil, []string{"attempts=N"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd, _ := clitest.Command(t, append([]string{"plan"}, tt.args...)...)
			cmd.Env = append(append(cmd.Env, "LC_ALL=C", "COLUMNS="), tt.env...)
			got := clitest.Finish(t, cmd)
			clitest.WantCode(t, got, 0)
			for _, want := range tt.want {
				clitest.WantIn(t, "stdout", got.Out, want)
			}
			for _, not := range tt.not {
				if strings.Contains(got.Out, not) {
					t.Errorf("stdout = %q, want no %q in it", got.Out, not)
				}
			}
		})
	}
}

func TestPlanSVG(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "plan.svg")
	args := []string{"plan", "http", "contention", "--log", "--seed", "1"}
	piped := clitest.Run(t, append(args, "--svg", "-")...)
	clitest.WantCode(t, piped, 0)
	filed := clitest.Run(t, append(args, "--svg", path)...)
	clitest.WantCode(t, filed, 0)
	clitest.WantIn(t, "stdout beside a drawing", filed.Out, "waits so far")
	clitest.WantCode(t, clitest.Run(t, "plan", "http", "--json", "--svg", filepath.Join(dir, "json.svg")), 0)
	data, err := os.ReadFile(path)
	if err != nil || string(data) != piped.Out {
		t.Errorf("--svg FILE wrote %q, %v; --svg - wrote %q", data, err, piped.Out)
	}
	d := xml.NewDecoder(strings.NewReader(piped.Out))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 2 {
		t.Errorf("files left: %v", entries)
	}
}

func TestPlanCompletes(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, "__complete", "plan", "http", "")
	clitest.WantIn(t, "completion", got.Out, "contention\twriters that collide on one thing\n")
	clitest.WantIn(t, "completion", got.Out, ":4\n") // cobra's directive to complete no file names
	if strings.Contains(got.Out, "http\t") {
		t.Errorf("completion offers what is given already: %q", got.Out)
	}
}

// TestPlanOnTerminal checks colour and width on a real terminal.
func TestPlanOnTerminal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		env    []string
		colour bool
	}{
		{"colour", []string{"NO_COLOR=", "TERM=xterm"}, true},
		{"none if the user wants none", []string{"NO_COLOR=1", "TERM=xterm"}, false},
		{"none on a dumb terminal", []string{"NO_COLOR=", "TERM=dumb"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out := planOnTerminal(t, tt.env)
			if got := strings.Contains(out, "\x1b[36m"); got != tt.colour {
				t.Errorf("output %q has colour: %v, want %v", out, got, tt.colour)
			}
			if !strings.Contains(out, strings.Repeat("=", 60)) {
				t.Errorf("output %q does not fill 123 columns", out)
			}
		})
	}
}

// planOnTerminal runs plan on a terminal of 123 columns.
func planOnTerminal(t *testing.T, env []string) string {
	t.Helper()
	cmd, _ := clitest.Command(t, "plan", "task", "--ascii")
	cmd.Env = append(append(cmd.Env, "COLUMNS=60"), env...)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 30, Cols: 123})
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	out, _ := io.ReadAll(tty) // returns an error when the command has ended
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return string(out)
}
