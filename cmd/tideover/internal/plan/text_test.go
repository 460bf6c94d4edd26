package plan

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/testfile"
)

// parse returns the plans of the policies in texts.
func parse(t *testing.T, o Options, texts ...string) (plans []Plan) {
	t.Helper()
	for _, text := range texts {
		p, err := Parse(text, o)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
	}
	return plans
}

func TestText(t *testing.T) {
	t.Parallel()
	seed := uint64(1)
	for _, tt := range []struct {
		file     string
		policies []string
		options  Options
		style    Style
	}{
		{"one", []string{"http"}, Options{}, Style{}},
		{"timeouts", []string{"http attempts=7 attempt-timeout=30s total-timeout=1m"}, Options{}, Style{}},
		{"unreachable", []string{"daemon total-timeout=5m"}, Options{}, Style{}},
		{"everything", []string{"default attempts=5 attempt-timeout=2s server-wait=8d server-slack=90s reset-after=10m hedge=p95"}, Options{}, Style{}},
		{"hedge", []string{"fixed(1s) attempts=2 hedge=200ms/1% budget=bucket(100,0.1)", "fixed(1s) attempts=2 budget=ratio(0.2)"}, Options{}, Style{}},
		{"unlimited", []string{"exponential(1s..5m) jitter=full attempts=unlimited"}, Options{}, Style{}},
		{"unlimited-timeout", []string{"exponential(1s) attempts=unlimited total-timeout=1h attempt-timeout=1m"}, Options{}, Style{}},
		{"long", []string{"fixed(1s) jitter=20% attempts=1000"}, Options{}, Style{}},
		{"endless", []string{"linear(1ns) attempts=2000000000"}, Options{List: 3}, Style{}},
		{"no-retry", []string{"exponential(1s..32s) jitter=20%"}, Options{}, Style{}},
		{"no-retries", []string{"fixed(1s)", "http attempts=1 attempt-timeout=3s"}, Options{}, Style{}},
		{"at-once", []string{"fixed(0s) attempts=3"}, Options{}, Style{}},
		{"sample", []string{"workflow-api"}, Options{Seed: &seed}, Style{}},
		{"two", []string{"http", "contention"}, Options{}, Style{}},
		{"two-log", []string{"daemon", "contention"}, Options{}, Style{Log: true}},
		{"two-crushed", []string{"daemon", "contention"}, Options{}, Style{}},
		{"two-sampled-ascii", []string{"http", "contention"}, Options{Seed: &seed}, Style{ASCII: true}},
		{"two-with-none", []string{"http", "fixed(1s)"}, Options{}, Style{}},
		{"four", []string{"http attempts=7", "task attempts=7", "daemon total-timeout=5m", "decorrelated(1s..1m) attempts=6"}, Options{}, Style{}},
		{"four-wide", []string{"http attempts=7", "task attempts=7", "daemon total-timeout=5m", "decorrelated(1s..1m) attempts=6"}, Options{}, Style{Width: 200}},
		{"narrow", []string{"http", "contention"}, Options{}, Style{Width: 40}},
		{"colour", []string{"http", "task"}, Options{}, Style{Colour: true}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			if err := Text(&b, parse(t, tt.options, tt.policies...), tt.style); err != nil {
				t.Fatal(err)
			}
			testfile.Golden(t, "testdata/"+tt.file+".txt", b.Bytes())
		})
	}
}

// The lines of every plan fit in the width, except policies, which are not wrapped.
func TestTextFits(t *testing.T) {
	t.Parallel()
	seed := uint64(3)
	escapes := regexp.MustCompile("\x1b\\[[0-9;]*m")
	for i, text := range samples {
		plans := parse(t, Options{Seed: &seed}, text, samples[(i+1)%len(samples)])
		for n := 1; n <= 2; n++ {
			draw := func(s Style) string {
				var b strings.Builder
				_ = Text(&b, plans[:n], s) // writing to a strings.Builder can't fail
				return b.String()
			}
			plain := draw(Style{Width: 100})
			if got := escapes.ReplaceAllString(draw(Style{Width: 100, Colour: true}), ""); got != plain {
				t.Errorf("%q: colour changes the text to\n%s\nfrom\n%s", text, got, plain)
			}
			for line := range strings.SplitSeq(draw(Style{Width: 100, ASCII: true}), "\n") {
				switch {
				case strings.HasSuffix(line, plans[0].Name), strings.HasSuffix(line, plans[n-1].Name),
					strings.HasSuffix(line, plans[0].Policy.String()), strings.HasSuffix(line, plans[n-1].Policy.String()):
					// A policy is printed on one line, so that users can copy it.
				case utf8.RuneCountInString(line) > 100:
					t.Errorf("%q: line of %d columns: %s", text, utf8.RuneCountInString(line), line)
				}
				if strings.TrimRight(line, " ") != line || len(line) != utf8.RuneCountInString(line) {
					t.Errorf("%q: line ends with a space or is not ASCII: %q", text, line)
				}
			}
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := List(&b, Presets(Options{}), Style{}); err != nil {
		t.Fatal(err)
	}
	testfile.Golden(t, "testdata/presets.txt", b.Bytes())
}

func TestADecorrelatedDelayBetweenEqualLimitsHasNoJitter(t *testing.T) {
	t.Parallel()
	const note = "These delays have no jitter"
	for text, want := range map[string]bool{"decorrelated(20s..20s) attempts=3": true, "decorrelated(20s..21s) attempts=3": false, "decorrelated(20s..20s)": false} {
		p := parse(t, Options{}, text)[0]
		if got := strings.Contains(strings.Join(p.Notes(), " "), note); got != want {
			t.Errorf("%s: says that there is no jitter: %v, want %v", text, got, want)
		}
	}
}
