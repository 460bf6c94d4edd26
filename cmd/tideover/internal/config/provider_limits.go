package config

import (
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/limit"
)

func rateKeys(d *providerDraft) []key {
	return []key{
		strictyaml.Parsed(&d.Rate, "requests", "", strictyaml.PatternSchema(frequencyPattern), limit.ParseRate,
			"Most requests per unit of time, such as 50/min; the units are s, min, h and d, or a duration. Default: no limit."),
		strictyaml.Int(&d.Burst, "burst", "", 1, "Requests that may be sent in a burst. Default: 1."),
		strictyaml.Int(&d.Concurrent, "concurrent", "", 1,
			"Most requests at the same time. Default: no limit."),
		strictyaml.Int(&d.Queue, "queue", "", 1,
			"Requests that may wait in the queue, for the limit or for the provider to recover."),
		strictyaml.Bool(&d.Adaptive, "adaptive", "Whether to adapt the rate to 429 responses."),
	}
}

// rateExample returns the text if it is a rate, or else one that is.
func rateExample(text string) string {
	if _, err := limit.ParseRate(text); err != nil {
		return "50/min"
	}
	return text
}

const frequencyPattern = `^0*[1-9][0-9]*/(s|min|h|d|0*[1-9][0-9]*d|(` + strictyaml.HoursPattern + `)+)$`

func breakerKeys(d *providerDraft) []key {
	return []key{
		strictyaml.Field(&d.Breaker.FailureRate, "failures", "", percentSchema, readPercent,
			"Share of failed requests at which the provider counts as down, such as 50%."),
		strictyaml.Duration(&d.Breaker.Window, "window", "",
			"Time window over which the shares are computed."),
		// after window, which gives it another meaning
		strictyaml.Func("of-last", "", strictyaml.IntSchema(1), func(at place) {
			n := strictyaml.ReadInt(at, 1)
			if d.Breaker.MinCalls = n; d.at.Node.Get("breaker").Get("window") == nil {
				d.Breaker.Window, d.Breaker.WindowCalls, d.Breaker.MinCalls = 0, n, 0
			}
		}, "Number of most recent requests over which the shares are computed; together with window, the fewest requests in the window."),
		strictyaml.Int(&d.Breaker.ConsecutiveFailures, "consecutive", "", 0,
			"Consecutive failures at which the provider counts as down; 0 for no limit."),
		strictyaml.Duration(&d.OpenFor, "open-for", "",
			"Shortest wait before the next probe of a provider that is down."),
		strictyaml.Duration(&d.Breaker.SlowCall, "slow", "",
			"A request is slow if its response takes at least this long to begin. Default: no request is slow."),
		strictyaml.Field(&d.Breaker.SlowRate, "slow-rate", "", percentSchema, readPercent,
			"Share of slow requests at which the provider counts as down. Default: 80%."),
	}
}

func streamKeys(d *providerDraft) []key {
	return []key{
		strictyaml.Field(&d.StreamHold, "hold", "", durationOrNoneSchema, durationOrNone,
			"How long a stream is held back until its first content, so that the request can still be retried; none to pass it on at once."),
		strictyaml.Field(&d.StreamIdle, "idle", "", durationOrNoneSchema, durationOrNone,
			"Longest pause within a response; none for no limit."),
	}
}

// saysNone reports whether the value is the word for no limit.
func saysNone(at place) bool {
	none := at.Node.Kind == strictyaml.KindText && at.Node.Text == "none"
	if none {
		at.Record("none")
	}
	return none
}

func durationOrNoneSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: "^(none|" + strictyaml.DurationPattern + ")$", AllOf: []*jsonschema.Schema{{Pattern: strictyaml.AbovePattern + "|^none$"}}}
}

// durationOrNone reads a duration above zero. None is below zero, because zero is
// what the gateway fills in.
func durationOrNone(at place) time.Duration {
	if saysNone(at) {
		return -1
	}
	return strictyaml.ReadDuration(at)
}

func sizeOrNoneSchema() *jsonschema.Schema {
	s := strictyaml.SizeSchema()
	s.Pattern = "^none$|" + s.Pattern
	return s
}

// bytesOrNone is durationOrNone for a number of bytes.
func bytesOrNone(at place) int64 {
	if saysNone(at) {
		return -1
	}
	return strictyaml.ReadSize(at)
}
