package chaos

import (
	"cmp"
	"fmt"
	"strings"
)

// presets are ready-made specs, for experiments and for the demo.
var presets = []struct{ name, use, text string }{
	{
		"flaky-llm", "a model's API on a bad day: limits, overload, slow answers, lost connections",
		`*: delay=p50:150ms..p99:4s 429(retry-after=2)=6% 429(retry-after-ms=700)=4% 529=5% fail=4% reset=1% close=1% 200(cut=60%)=2% hang=0.5%`,
	},
	{
		"outage", "works, but for 15 s of every minute its port is closed, and for a moment before that it answers 503",
		`*: delay=20ms..60ms down 5s every 1m from 15s as 503(retry-after=due) down 15s every 1m from 20s as refuse`,
	},
	{
		"overload", "takes 8 at once and 20 per second, gets slower the more are in progress, and says when to come back",
		`*: concurrent=8 rate=20/s service=80ms+60ms over=429(retry-after=due)`,
	},
	{
		"slow", "everything arrives, late: a long tail, bodies that dribble, uploads that are hardly read, and some that never end",
		`*: delay=p50:400ms..p99:8s 200(dribble=16/50ms)=20% 200(read=4KiB/100ms)=10% 200(stall=50%)=2% hang=1%`,
	},
	{
		"streams", "event streams of OpenAI, Anthropic and others, each in turn whole, with an error at first, after the start, in the middle, cut, and without its end",
		streams("/v1/chat/completions", OpenAI) + "; " + streams("/v1/responses", Responses) + "; " + streams("/v1/messages", Anthropic) + "; " + streams("", "plain"),
	},
}

// streams returns a rule whose script has every fault of a stream.
func streams(path, form string) string {
	base := "200(stream=" + form + " events=20 every=50ms"
	script := []string{base + ")", base + " error-at=first)", base + " error-at=start)", base + " error-at=5)", base + " cut=event:8)"}
	if form != "plain" {
		script = append(script, base+" no-done)")
	}
	return cmp.Or(path, "*") + ": " + strings.Join(script, ",") + " cycle"
}

// Preset returns the ready-made spec with the name.
func Preset(name string) (Spec, error) {
	var names []string
	for _, p := range presets {
		if p.name == name {
			return MustParse(p.text), nil
		}
		names = append(names, p.name)
	}
	return Spec{}, fmt.Errorf("unknown preset %q; known presets: %s", name, strings.Join(names, ", "))
}

// Presets yields the name and the description of each preset.
func Presets(yield func(name, use string) bool) {
	for _, p := range presets {
		if !yield(p.name, p.use) {
			return
		}
	}
}
