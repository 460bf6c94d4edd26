package simulate

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/sim"
)

// at5 is the 97.5 % quantile of Student's t for five values.
const at5 = 2.776

// estimate computes the simulator's estimate of five values.
func estimate(values []float64) sim.Estimate {
	mean, squares := 0.0, 0.0
	for _, v := range values {
		mean += v / 5
	}
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	return sim.Estimate{Mean: mean, Half: at5 * math.Sqrt(squares/4/5), N: 5}
}

func minus(a, b []float64) []float64 {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	return d
}

// madeUp returns a view of an invented report: each policy has these shares of success in five seeds.
func madeUp(success ...[]float64) *View {
	v := &View{Scenario: madeUpScenario, Report: &sim.Report{Scenario: "made-up", Seeds: 5, Bucket: 1}}
	for i, values := range success {
		name := string(rune('a' + i))
		r := sim.Result{Name: name, Policy: "fixed(1s)"}
		r.Success = estimate(values)
		if i > 0 {
			r.Versus = &sim.Measures[sim.Estimate]{Success: estimate(minus(values, success[0]))}
		}
		v.Report.Results = append(v.Report.Results, r)
		v.Contestants = append(v.Contestants, sim.Contestant{Name: name})
	}
	return v
}

var madeUpScenario = sim.Scenario{
	Name: "made-up", About: "numbers that were not simulated", Duration: 20 * time.Second, Bucket: time.Second,
	Clients:  sim.Clients{Count: 100, Arrivals: sim.Open, Rate: 10},
	Services: []sim.Service{{Name: "shop", Workers: 3, Latency: sim.Latency{Distribution: sim.Exponential, Mean: 100 * time.Millisecond}}},
	Failures: []sim.Failure{{Kind: sim.Outage, From: 5 * time.Second, Until: 10 * time.Second}},
}

func TestBest(t *testing.T) {
	t.Parallel()
	noisy := []float64{0.5, 0.6, 0.7, 0.8, 0.9}
	better := []float64{0.51, 0.61, 0.71, 0.81, 0.911}
	apart := []float64{0.1, 0.1, 0.11, 0.1, 0.1}
	for _, tt := range []struct {
		name    string
		success [][]float64
		want    int
	}{
		{"one alone is not the best", [][]float64{noisy}, -1},
		{"the same", [][]float64{noisy, noisy}, -1},
		{"a little better in every seed", [][]float64{noisy, better}, 1},
		{"the same the other way round", [][]float64{better, noisy}, 0},
		{"better by chance", [][]float64{noisy, {0.9, 0.5, 0.6, 0.7, 0.95}}, -1},
		{"better than both others", [][]float64{apart, noisy, better}, -1}, // the report does not contain this pair, and the bound is wide
		{"better than both others, by far", [][]float64{noisy, apart, {0.99, 0.99, 0.99, 0.99, 0.98}}, 2},
	} {
		if got := madeUp(tt.success...).best(byName("success")); got != tt.want {
			t.Errorf("%s: best = %d, want %d", tt.name, got, tt.want)
		}
	}
}

// The test draws random values, and compares differs with the interval of each pair.
func TestDiffersClaimsNothing(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	claimed, missed := 0, 0
	for range 4_000 {
		var all [][]float64
		common := make([]float64, 5)
		for i := range common {
			common[i] = r.Float64()
		}
		for range 3 {
			values, by := make([]float64, 5), r.Float64()/5
			for i := range values {
				values[i] = common[i] + by + r.Float64()/10
			}
			all = append(all, values)
		}
		v := madeUp(all...)
		for a := range all {
			for b := range a {
				d := estimate(minus(all[a], all[b]))
				sure := math.Abs(d.Mean) > d.Half
				says := v.differs(byName("success"), a, b)
				if says && !sure {
					t.Fatalf("claims a difference between %v and %v", all[a], all[b])
				}
				if says {
					claimed++
				} else if sure {
					missed++
				}
			}
		}
	}
	if claimed < 2_000 || missed > claimed {
		t.Errorf("claimed %d differences and missed %d", claimed, missed)
	}
}

func TestSomeSeedsAreNotCompared(t *testing.T) {
	t.Parallel()
	v := madeUp([]float64{1, 1, 1, 1, 1}, []float64{0, 0, 0, 0, 0})
	m := byName("recovery")
	for i := range v.Report.Results {
		v.Report.Results[i].Recovery = sim.Estimate{Mean: float64(1 + i), N: 5 - i}
	}
	if got := v.best(m); got != -1 {
		t.Errorf("best = %d of a policy that recovered in some seeds only", got)
	}
	if c := v.cell(m, 1); c.Note != "4 of 5" || c.Value != "2s" {
		t.Errorf("cell = %+v", c)
	}
}

// A report with one seed has no intervals.
func TestOneSeedProvesNothing(t *testing.T) {
	t.Parallel()
	v := madeUp([]float64{1, 1, 1, 1, 1}, []float64{0, 0, 0, 0, 0})
	v.Report.Seeds = 1
	for i := range v.Report.Results {
		v.Report.Results[i].Success = sim.Estimate{Mean: float64(i), N: 1}
	}
	if got := v.best(byName("success")); got != -1 {
		t.Errorf("best = %d from one seed", got)
	}
}

func TestFindings(t *testing.T) {
	t.Parallel()
	one, half, none := []float64{1, 1, 1, 1, 1}, []float64{0.5, 0.51, 0.5, 0.5, 0.5}, []float64{0, 0, 0, 0, 0}
	never := func(v *View, shares ...float64) *View {
		for i, s := range shares {
			v.Report.Results[i].NeverRecovers = s
			v.Report.Results[i].Recovery = sim.Estimate{Mean: 3, N: 5 - int(5*s)}
		}
		return v
	}
	single := madeUp(half)
	single.Report.Seeds = 1
	pair := madeUp(one, half)
	pair.Report.Seeds = 1
	endless := never(madeUp(one, one), 1, 1)
	endless.Scenario.Failures = []sim.Failure{{Kind: sim.Outage}}
	costly := madeUp(one, one)
	for i := range costly.Report.Results {
		r := &costly.Report.Results[i]
		r.Amplification, r.PeakRetries, r.P99 = sim.Estimate{Mean: float64(4 - i), N: 5}, sim.Estimate{Mean: float64(40 - i), N: 5}, sim.Estimate{Mean: float64(2 + i), N: 5}
	}
	for _, tt := range []struct {
		name string
		view *View
		want string
	}{
		{"the same at another price", costly, "About equally many calls succeed with each policy, and b makes the fewest attempts: 3.00 per call, compared to 4.00 with a. " +
			"At the peak, a makes 40 retries in 1s, and b 39. 99% of the calls take 2s or less with a, and 3s with b."},
		{"no difference", madeUp(one, one), "No difference between the policies is larger than chance in 5 seeds."},
		{"no difference between policies that recover", never(madeUp(one, one), 0, 0), "No difference between the policies is larger than chance in 5 seeds."},
		{"one is better", madeUp(half, one), "Most calls succeed with b: 100%, compared to 50.2% with a."},
		{"one is worse", madeUp(one, one, half), "Fewest calls succeed with c: 50.2%, compared to 100% with a."},
		{"nothing succeeds", madeUp(none, none), "No call succeeds with any policy."},
		{"one alone", single, "50.2% of the calls succeed."},
		{"one seed", pair, "One seed can't show whether a difference is chance; use more with --seeds."},
		{"all never recover", never(madeUp(one, one), 1, 1), "a and b never recover, in 5 of 5 seeds."},
		{"one never recovers", never(madeUp(one, one, one), 1, 0, 0.4), "a never recovers, in 5 of 5 seeds; not all seeds recover with c (3 of 5 do); all seeds recover with b (after 3s on average)."},
		{"failures that never end", endless, "No difference between the policies is larger than chance in 5 seeds."},
	} {
		if got := strings.Join(tt.view.Findings(), " "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// drawn returns a view with every kind of chart.
func drawn(policies int) *View {
	shares := [][]float64{{0.5, 0.51, 0.5, 0.5, 0.5}, {0.9, 0.91, 0.9, 0.9, 0.92}, {0.9, 0.91, 0.9, 0.9, 0.92}}[:policies]
	v := madeUp(shares...)
	v.Command = "tideover sim made-up.yaml --seed 0 --seeds 5"
	for i := range v.Report.Results {
		r := &v.Report.Results[i]
		r.Name = []string{"naive", "jitter", "a-policy-with-a-long-name-indeed"}[i]
		r.Goodput = sim.Estimate{Mean: 8.25, Half: 0.125, N: 5}
		r.Peak = sim.Estimate{Mean: 1234 / float64(i+1), Half: 3, N: 5}
		r.P99 = sim.Estimate{Mean: 1.5, Half: 0.0123, N: 5}
		r.GiveUp = sim.Estimate{Mean: 2, N: 1}
		r.Recovery = sim.Estimate{Mean: float64(4 * i), N: 5 * min(i, 1)}
		r.NeverRecovers = float64(1 - min(i, 1))
		for n := range 20 {
			load, good := 10.0, 10.0
			if n >= 5 && n < 10 {
				load, good = float64(20*n)/float64(i+1), 0
			}
			if n >= 10 && i == 0 {
				load, good = 100, 1
			}
			r.Series.Offered = append(r.Series.Offered, 10)
			r.Series.Load = append(r.Series.Load, load)
			r.Series.Goodput = append(r.Series.Goodput, good)
			r.Series.Waiting = append(r.Series.Waiting, float64(n*(1-i%2)))
		}
		r.Series.Attempts = [][]float64{r.Series.Offered, r.Series.Load}
		r.CDF = []sim.Point{{Seconds: 0.001, Share: 0}, {Seconds: 0.1, Share: 0.5}, {Seconds: 2, Share: 1}}
	}
	return v
}

func TestText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		policies int
		style    Style
	}{
		{"text.txt", 3, Style{Width: 100}},
		{"text-default.txt", 2, Style{}},
		{"text-narrow.txt", 3, Style{Width: 50}},
		{"text-ascii.txt", 2, Style{Width: 72, ASCII: true}},
		{"text-colour.txt", 2, Style{Width: 60, Colour: true}},
		{"text-one.txt", 1, Style{Width: 60}},
	} {
		var b bytes.Buffer
		if err := Text(&b, drawn(tt.policies), tt.style); err != nil {
			t.Fatal(err)
		}
		testfile.Golden(t, "testdata/"+tt.name, b.Bytes())
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > max(tt.style.Width, 50) && tt.style.Width > 0 && !tt.style.Colour {
				t.Errorf("%s: a line has %d columns: %q", tt.name, n, line)
			}
		}
		if ascii := strings.IndexFunc(b.String(), func(r rune) bool { return r > 0x7e }) < 0; tt.style.ASCII && !ascii {
			t.Errorf("%s is not ASCII", tt.name)
		}
		if coloured := strings.Contains(b.String(), "\x1b"); coloured != tt.style.Colour {
			t.Errorf("%s: coloured is %v", tt.name, coloured)
		}
	}
}

// The text contains no escape sequences.
func TestTextIsHarmless(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := Text(&b, simulated(t, hostile, 2), Style{Width: 100}); err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(b.String(), func(r rune) bool { return r < ' ' && r != '\n' || r == '\u202e' }); i >= 0 {
		t.Errorf("the text has %q", b.String()[i:i+10])
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		unit unit
		f    float64
		want string
	}{
		{share, 0, "0%"}, {share, 1, "100%"}, {share, 0.9999999, "99.999%"}, {share, 0.99995, "99.995%"}, {share, 0.123, "12.3%"}, {share, 0.000002, "0.0002%"},
		{ratio, 64, "64.0"}, {ratio, 1.014, "1.01"}, {ratio, 0.014, "0.0140"}, {ratio, 123456, "123,456"},
		{second, 0.0123, "12.3ms"}, {second, 143.1, "2m23.1s"}, {second, 1e300, "146y"},
		{count, 1234567.4, "1,234,567"}, {count, 999, "999"},
	} {
		if got := tt.unit.value(tt.f); got != tt.want {
			t.Errorf("%d: value(%v) = %q, want %q", tt.unit, tt.f, got, tt.want)
		}
	}
	for top, want := range map[float64]string{0: "[0]", 1: "[0 0.2 0.4 0.6000000000000001 0.8 1]", 7: "[0 2 4 6]", 1451: "[0 500 1000]", math.Inf(1): "[0]", math.NaN(): "[0]"} {
		if got := fmt.Sprint(nice(top, 5)); got != want {
			t.Errorf("nice(%v) = %s, want %s", top, got, want)
		}
	}
}

// Every built-in scenario, and one with all keys, is described.
func TestDescribe(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, name := range []string{"full.yaml", "writers.yaml", "closed.yaml", "open.yaml", "group.yaml"} {
		f, err := Read("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", name)
		for _, s := range Describe(f.Scenario) {
			fmt.Fprintf(&b, "  %s\n", s)
		}
	}
	testfile.Golden(t, "testdata/describe.txt", []byte(b.String()))
}

// A usual share of errors never ends, and does not hide the recovery from an outage.
func TestAPermanentFailureDoesNotHideTheRecovery(t *testing.T) {
	t.Parallel()
	minute := time.Minute
	outage := func(until time.Duration) sim.Failure {
		return sim.Failure{Kind: sim.Outage, From: time.Second, Until: until}
	}
	usual := sim.Failure{Kind: sim.Errors, Share: 0.01}
	for _, tt := range []struct {
		what     string
		failures []sim.Failure
		want     bool
	}{
		{"nothing", nil, false},
		{"only usual errors", []sim.Failure{usual}, false},
		{"an outage", []sim.Failure{outage(minute / 2)}, true},
		{"an outage and usual errors", []sim.Failure{usual, outage(minute / 2)}, true},
		{"an outage to the end", []sim.Failure{usual, outage(minute)}, false},
	} {
		v := madeUp([]float64{1, 1, 1, 1, 1})
		v.Scenario.Duration, v.Scenario.Failures, v.Scenario.Clients.Arrivals = minute, tt.failures, sim.Open
		v.Scenario.Writers, v.Scenario.Group = nil, nil
		has := slices.ContainsFunc(v.rows(), func(m *measure) bool { return m.name == "recovery" })
		if has != tt.want || has == (v.noRecovery() != "") {
			t.Errorf("%s: has a row for the recovery: %v, want %v; the sentence is %q", tt.what, has, tt.want, v.noRecovery())
		}
	}
}
