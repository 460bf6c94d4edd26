package retry

import (
	"encoding/json"
	"flag"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/limit"
)

func TestPresets(t *testing.T) {
	tests := []struct {
		name   string
		text   string
		delays string // delays of the retries, without jitter
	}{
		{"default", "exponential(50ms..20s) jitter=full attempts=3 total-timeout=30s throttle-base=1s budget=refund(1,0.1,10)", "50ms 100ms"},
		{"daemon", "exponential(30s..5m) jitter=10% attempts=6", "30s 60s 120s 240s 300s"},
		{"workflow", "fixed(1s..5m) attempts=3", "1s 1s"},
		{"workflow-api", "exponential(1s..1m) jitter=50% attempts=5", "1s 2s 4s 8s"},
		{"contention", "exponential(10ms..1s) max-doublings=6 jitter=+50% attempts=7", "10ms 20ms 40ms 80ms 160ms 320ms"},
		{"http", "exponential(1s..32s) jitter=20% attempts=4", "1s 2s 4s"},
		{"http-conservative", "exponential(500ms..1m) jitter=20% attempts=6", "500ms 1s 2s 4s 8s"},
		{"http-interactive", "exponential(500ms..8s) jitter=20% attempts=3", "500ms 1s"},
		{"http-batch", "exponential(2s..32s) jitter=20% attempts=4", "2s 4s 8s"},
		{"task", "exponential(1s..30s) attempts=4", "1s 2s 4s"},
	}
	known := map[string]bool{}
	for name, use := range Presets {
		known[name] = true
		if use == "" {
			t.Errorf("preset %s does not say what it is for", name)
		}
	}
	if len(known) != len(tests) {
		t.Errorf("%d presets, want %d", len(known), len(tests))
	}
	for _, tt := range tests {
		p, ok := Preset(tt.name)
		if !ok {
			t.Errorf("Preset(%q) is missing", tt.name)
			continue
		}
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got := p.String(); got != tt.text {
			t.Errorf("%s is %q, want %q", tt.name, got, tt.text)
		}
		for _, text := range []string{tt.name, tt.text} {
			if got, err := Parse(text); err != nil || got != p {
				t.Errorf("Parse(%q) = %v, %v, want %v", text, got, err, p)
			}
		}
		want := strings.Fields(tt.delays)
		for k, d := range p.Delays(nil) {
			if w, _ := time.ParseDuration(want[k-1]); d != w {
				t.Errorf("%s: retry %d waits %v, want %v", tt.name, k, d, w)
			}
			want[k-1] = ""
		}
		if rest := strings.Join(want, ""); rest != "" {
			t.Errorf("%s: no retry waits %s", tt.name, rest)
		}
	}
}

func TestDelaysBeyondThePresets(t *testing.T) {
	tests := []struct{ text, want string }{
		{"http attempts=7", "1s 2s 4s 8s 16s 32s"},
		{"task attempts=7", "1s 2s 4s 8s 16s 30s"},
		{"contention attempts=9", "10ms 20ms 40ms 80ms 160ms 320ms 640ms 640ms"},
		{"workflow-api attempts=9", "1s 2s 4s 8s 16s 32s 60s 60s"},
	}
	for _, tt := range tests {
		p, err := Parse(tt.text)
		if err != nil {
			t.Fatal(err)
		}
		var got []time.Duration
		for _, d := range p.Delays(nil) {
			got = append(got, d)
		}
		for i, w := range strings.Fields(tt.want) {
			if w, _ := time.ParseDuration(w); i >= len(got) || got[i] != w {
				t.Errorf("%s: delays %v, want %v", tt.text, got, tt.want)
				break
			}
		}
	}
}

func TestParse(t *testing.T) {
	tests := []struct {
		text string
		want Policy
		back string // canonical text; "" means the same as text
	}{
		{"fixed(0s)", Policy{}, ""},
		{"fixed(2s) attempts=3", Policy{Schedule: backoff.Schedule{Base: 2 * time.Second}, Attempts: 3}, ""},
		{"linear(1s..10s) attempts=unlimited", Policy{Schedule: backoff.Schedule{Kind: backoff.Linear, Base: time.Second, Cap: 10 * time.Second}, Attempts: Unlimited}, ""},
		{"exponential(1s) cap=1m", Policy{Schedule: backoff.Schedule{Kind: backoff.Exponential, Base: time.Second, Cap: time.Minute}}, "exponential(1s..1m)"},
		{"decorrelated(50ms..20s) attempts=9", Policy{Schedule: backoff.Schedule{Kind: backoff.Decorrelated, Base: 50 * time.Millisecond, Cap: 20 * time.Second}, Attempts: 9}, ""},
		{"fixed(1.5us)", Policy{Schedule: backoff.Schedule{Base: 1500}}, ""},
		{"fixed(1d12h) reset-after=8d", Policy{Schedule: backoff.Schedule{Base: 36 * time.Hour}, ResetAfter: 8 * 24 * time.Hour}, "fixed(36h) reset-after=8d"},
		{"task base=2s cap=none jitter=none", Policy{Schedule: backoff.Schedule{Kind: backoff.Exponential, Base: 2 * time.Second}, Attempts: 4}, "exponential(2s) attempts=4"},
		{"default total-timeout=none budget=none throttle-base=none", Policy{Schedule: backoff.Schedule{Kind: backoff.Exponential, Base: 50 * time.Millisecond, Cap: 20 * time.Second, Jitter: backoff.Full}, Attempts: 3}, "exponential(50ms..20s) jitter=full attempts=3"},
		{"  exponential(1s..2s)\n\tfactor=1.5 ", Policy{Schedule: backoff.Schedule{Kind: backoff.Exponential, Base: time.Second, Cap: 2 * time.Second, Factor: 1.5}}, "exponential(1s..2s) factor=1.5"},
		{"fixed(1s) server-wait=8d server-slack=90s attempt-timeout=1m30s", Policy{Schedule: backoff.Schedule{Base: time.Second}, ServerWait: 8 * 24 * time.Hour, ServerSlack: 90 * time.Second, AttemptTimeout: 90 * time.Second}, "fixed(1s) attempt-timeout=1m30s server-wait=8d server-slack=1m30s"},
		{"fixed(1s) budget=ratio(0.2) hedge=p95/5%", Policy{Schedule: backoff.Schedule{Base: time.Second}, Budget: limit.Ratio(0.2), Hedge: Hedge{Percentile: 95, Share: 0.05}}, ""},
		{"fixed(1s) hedge=200ms", Policy{Schedule: backoff.Schedule{Base: time.Second}, Hedge: Hedge{After: 200 * time.Millisecond}}, ""},
		{"fixed(1s) hedge=p99.9/0.1%", Policy{Schedule: backoff.Schedule{Base: time.Second}, Hedge: Hedge{Percentile: 99.9, Share: 0.001}}, ""},
		{"exponential(1s) max-doublings=6", Policy{Schedule: backoff.Schedule{Kind: backoff.Exponential, Base: time.Second, MaxDoublings: 6}}, ""},
	}
	for _, tt := range tests {
		got, err := Parse(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", tt.text, got, err, tt.want)
			continue
		}
		back := tt.back
		if back == "" {
			back = tt.text
		}
		if got.String() != back {
			t.Errorf("Parse(%q).String() = %q, want %q", tt.text, got, back)
		}
	}
}

func TestParseQuotesTheWordThatIsWrong(t *testing.T) {
	tests := []struct{ text, word string }{
		{"", `""`},
		{"htpp", `"htpp"`},
		{"quadratic(1s)", `"quadratic"`},
		{"exponential(1s", `"exponential(1s"`},
		{"exponential(1s, 30s)", "no spaces inside"},
		{"exponential(1s..30s), attempts=3", `"," follows the parenthesis`},
		{"exponential attempts=3", "needs its delays, as in exponential(1s..30s)"},
		{"Exponential(1s)", "in lower case"},
		{"attempts=3 exponential(1s)", "starts with a family"},
		{"http fixed(1s)", "as its first word"},
		{"http retries=3", "attempts, which counts the first try too"},
		{"http timeout=3s", "attempt-timeout or total-timeout"},
		{"http jitter=20", `": jitter: "20": want none`},
		{"http budget=10", `": budget`},
		{"http hedge=p95/5", "as in p95/5%"},
		{"exponential(1s..30s) cap=5s", `key "cap" is already set, in exponential(1s..30s)`},
		{"http attempts=-1", "write unlimited"},
		{"exponential(x..2s)", `"x"`},
		{"exponential()", `""`},
		{"exponential(0s)", `"0s"`},
		{"exponential(5s..1s)", "cap:"},
		{"decorrelated(1s)", "cap:"},
		{"fixed(-1s)", `"-1s"`},
		{"fixed(1s) attempts=0", `"0"`},
		{"fixed(1s) attempts=-3", `"-3"`},
		{"fixed(1s) attempts=2.5", `"2.5"`},
		{"fixed(1s) attempts=99999999999999999999", `"99999999999999999999"`},
		{"fixed(1s) atempts=3", `"atempts"`},
		{"fixed(1s) attempts=3 attempts=3", `"attempts"`},
		{"fixed(1s) base=3s", `"base"`},
		{"fixed(1s..2s) cap=3s", `"cap"`},
		{"fixed(1s) loose", `"loose"`},
		{"fixed(1s) jitter=NaN..1", `"NaN..1"`},
		{"fixed(1s) jitter=120%", `"120%"`},
		{"fixed(1s) total-timeout=0s", `"0s"`},
		{"fixed(1s) total-timeout=99999999999h", `"99999999999h"`},
		{"fixed(1s) server-wait=1e9d", `"1e9d"`},
		{"fixed(1s) server-wait=999999999d", `"999999999d"`},
		{"exponential(1s) factor=0.5", `"0.5"`},
		{"exponential(1s) factor=NaN", `"NaN"`},
		{"fixed(1s) factor=2", "factor:"},
		{"exponential(1s) max-doublings=-1", `"-1"`},
		{"fixed(1s) budget=refund(1)", `"refund(1)"`},
		{"fixed(1s) hedge=p100", "p100"},
		{"fixed(1s) hedge=p95/0%", `"p95/0%"`},
		{"fixed(1s) hedge=0s", `"0s"`},
		{"fixed(1µs)", `"fixed(1µs)"`},
		{"exponential(1s..10s) throttle-base=20s", "throttle-base:"},
	}
	for _, tt := range tests {
		p, err := Parse(tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.word) {
			t.Errorf("Parse(%q) = %v, %v, want an error with %s", tt.text, p, err, tt.word)
		}
	}
	if _, err := Parse(strings.Repeat("x", 5000)); err == nil || len(err.Error()) > 300 {
		t.Errorf("Parse of a long text: %v, want a short error", err)
	}
}

func TestPolicyValidateNamesEveryField(t *testing.T) {
	p := Policy{
		Schedule: backoff.Schedule{Kind: 7, Base: -1, Jitter: backoff.Band{Lo: math.NaN(), Hi: 1}},
		Attempts: -2, AttemptTimeout: -1, TotalTimeout: -1, ThrottleBase: -1,
		ServerWait: -1, ServerSlack: -1, ResetAfter: -1,
		Budget: limit.Ratio(math.NaN()), Hedge: Hedge{Percentile: math.NaN()},
	}
	err := p.Validate()
	for _, key := range []string{
		"kind:", "base:", "jitter:", "attempts:", "attempt-timeout:", "total-timeout:", "throttle-base:",
		"server-wait:", "server-slack:", "reset-after:", "budget:", "hedge:",
	} {
		if err == nil || !strings.Contains("\n"+err.Error(), "\n"+key) {
			t.Errorf("Validate() = %v, want a line that starts with %s", err, key)
		}
	}
	if _, err := p.MarshalText(); err == nil {
		t.Error("MarshalText of an invalid policy succeeded")
	}
	for _, h := range []Hedge{
		{After: -1},
		{After: 1, Percentile: 95},
		{Share: 0.1},
		{Percentile: 100},
		{After: 1, Share: 2},
		{After: 1, Share: math.NaN()},
	} {
		if h.Validate() == nil {
			t.Errorf("%+v is valid", h)
		}
	}
}

func TestPolicyInJSONAndFlags(t *testing.T) {
	type config struct{ Policy Policy }
	want, _ := Preset("http")
	data, err := json.Marshal(config{want})
	if err != nil || string(data) != `{"Policy":"exponential(1s..32s) jitter=20% attempts=4"}` {
		t.Errorf("json.Marshal = %s, %v", data, err)
	}
	var back config
	if err := json.Unmarshal(data, &back); err != nil || back.Policy != want {
		t.Errorf("json.Unmarshal = %v, %v, want %v", back.Policy, err, want)
	}
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var p Policy
	fs.TextVar(&p, "policy", Policy{}, "")
	if err := fs.Parse([]string{"-policy", "http"}); err != nil || p != want {
		t.Errorf("flag: %v, %v", p, err)
	}
	if err := fs.Parse([]string{"-policy", "htpp"}); err == nil || !strings.Contains(err.Error(), `"htpp"`) {
		t.Errorf("flag with a typo: %v", err)
	}
}

func TestRefuse(t *testing.T) {
	p, _ := Parse("fixed(1s) reset-after=10m hedge=p95")
	err := p.Refuse("a step", "hedge", "budget", "reset-after")
	if err == nil || err.Error() != "hedge: a step can't honour hedge=p95\nreset-after: a step can't honour reset-after=10m" {
		t.Errorf("Refuse = %v", err)
	}
	if err := p.Refuse("a step", "budget"); err != nil {
		t.Errorf("Refuse of a key that is not set = %v", err)
	}
	if err := p.Refuse("a step", "hedgehog"); err == nil {
		t.Error("Refuse of an unknown key = nil")
	}
}

func FuzzParse(f *testing.F) {
	for name := range Presets {
		p, _ := Preset(name)
		f.Add(name)
		f.Add(p.String())
	}
	for _, s := range []string{
		"fixed(1s..2s) factor=2 jitter=+33% attempts=unlimited hedge=p99.9/1%", "linear(1us) budget=bucket(100,0.1)",
		"exponential(1s..2d) server-wait=1d12h server-slack=90s reset-after=1ns", "decorrelated(1ns..9d)", "fixed(",
		"fixed(1s) hedge=1ms/33.33333333333333333%", "exponential(1s) factor=1.00000000000000001 jitter=0.1..0.30000000000000004",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			if !strings.ContainsAny(err.Error(), `"`) {
				t.Fatalf("Parse(%q): %v quotes nothing", text, err)
			}
			return
		}
		if err := p.Validate(); err != nil {
			t.Fatalf("Parse(%q) = %v is not valid: %v", text, p, err)
		}
		again, err := Parse(p.String())
		if err != nil || again != p {
			t.Fatalf("Parse(%q) = %v, whose text reads as %v, %v", text, p, again, err)
		}
	})
}

// FuzzPolicyText starts from policies that are built from numbers, not parsed from a text.
func FuzzPolicyText(f *testing.F) {
	f.Add(uint8(2), int64(time.Second), int64(time.Minute), 1.5, 3, 0.8, 1.2, 4, int64(1), int64(2), int64(3), int64(4), int64(5), int64(6), uint8(1), 1.0, 0.1, 10.0, int64(0), 95.0, 0.05)
	f.Add(uint8(3), int64(1), int64(1<<62), 0.0, 0, 0.0, 0.0, -1, int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), uint8(2), 0.0, 0.0, 0.2, int64(7), 0.0, 1.0/3)
	f.Fuzz(func(t *testing.T, kind uint8, base, limited int64, factor float64, doublings int, lo, hi float64, attempts int,
		at, tt, tb, sw, ss, ra int64, budget uint8, x, y, z float64, after int64, percentile, share float64,
	) {
		d := func(n int64) time.Duration { return time.Duration(n) }
		p := Policy{
			Schedule: backoff.Schedule{
				Kind: backoff.Kind(kind), Base: d(base), Cap: d(limited), Factor: factor, MaxDoublings: doublings,
				Jitter: backoff.Band{Lo: lo, Hi: hi},
			},
			Attempts: attempts, AttemptTimeout: d(at), TotalTimeout: d(tt), ThrottleBase: d(tb),
			ServerWait: d(sw), ServerSlack: d(ss), ResetAfter: d(ra),
			Budget: []limit.BudgetSpec{{}, limit.Refund(x, y, z), limit.Ratio(z), limit.Bucket(z, x)}[budget%4],
			Hedge:  Hedge{After: d(after), Percentile: percentile, Share: share},
		}
		if p.Validate() != nil {
			return
		}
		if got, err := Parse(p.String()); err != nil || got != p {
			t.Fatalf("%#v\nhas the text %q, which reads as\n%#v, %v", p, p, got, err)
		}
	})
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0s": 0, "500ms": 500 * time.Millisecond, "1m30s": 90 * time.Second, "2d": 48 * time.Hour, "1.5d": 36 * time.Hour, "1d12h": 36 * time.Hour,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5", "-1s", "+1s", "d", "1d-2h", "1h2d", "1 s", "200000d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", text, got)
		}
	}
}

func TestParseWithAsksTheLookup(t *testing.T) {
	own := mustParse(t, "fixed(1s) attempts=9")
	lookup := func(name string) (Policy, bool) { return own, name == "own" }
	if p, err := ParseWith("own base=2s", lookup); err != nil || p.String() != "fixed(2s) attempts=9" {
		t.Errorf("ParseWith(own base=2s) = %v, %v", p, err)
	}
	if _, err := ParseWith("http", lookup); err == nil {
		t.Error("ParseWith knows a preset that the lookup does not")
	}
	if p, err := ParseWith("http", nil); err != nil || p != mustParse(t, "http") {
		t.Errorf("ParseWith(http, nil) = %v, %v; want the preset", p, err)
	}
	for text, want := range map[string]string{
		"own own":                   `"own" is not of the form key=value; a policy has one family or preset, as its first word`,
		"own jitter":                `"jitter" is not of the form key=value`,
		"own attempts=2 attempts=3": `key "attempts" is already set`,
	} {
		if _, err := ParseWith(text, lookup); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("ParseWith(%q) = %v, want %q at its end", text, err, want)
		}
	}
}
