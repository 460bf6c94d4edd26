package config

import (
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/limit"
)

var rateKeys = located("rate.", []key[*providerReader, providerDraft]{
	{
		Name: "requests", Doc: "Most requests per unit of time, such as 50/min; the units are s, min, h and d, or a duration. Default: no limit.",
		Schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Pattern: frequencyPattern} },
		Set: func(_ *providerReader, at place, d *providerDraft) {
			s, ok := at.Text()
			if !ok {
				return
			}
			var err error
			if d.Rate, err = limit.ParseRate(s); err != nil {
				at.Bad("%v", err)
				return
			}
			at.Record(s)
		},
	},
	{
		Name: "burst", Doc: "Requests that may be sent in a burst. Default: 1.", Schema: strictyaml.IntSchema(1),
		Set: func(_ *providerReader, at place, d *providerDraft) { d.Burst = strictyaml.ReadInt(at, 1) },
	},
	{
		Name: "concurrent", Doc: "Most requests at the same time. Default: no limit.", Schema: strictyaml.IntSchema(1),
		Set: func(_ *providerReader, at place, d *providerDraft) { d.Concurrent = strictyaml.ReadInt(at, 1) },
	},
	{
		Name: "queue", Doc: "Requests that may wait in the queue, for the limit or for the provider to recover.", Schema: strictyaml.IntSchema(1),
		Set: func(_ *providerReader, at place, d *providerDraft) { d.Queue = strictyaml.ReadInt(at, 1) },
	},
	{
		Name: "adaptive", Doc: "Whether to adapt the rate to 429 responses.", Schema: strictyaml.BoolSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.Adaptive = strictyaml.ReadBool(at) },
	},
})

// rateExample returns the text if it is a rate, or else one that is.
func rateExample(text string) string {
	if _, err := limit.ParseRate(text); err != nil {
		return "50/min"
	}
	return text
}

const frequencyPattern = `^0*[1-9][0-9]*/(s|min|h|d|0*[1-9][0-9]*d|(` + strictyaml.HoursPattern + `)+)$`

var breakerKeys = located("breaker.", []key[*providerReader, providerDraft]{
	{
		Name: "failures", Doc: "Share of failed requests at which the provider counts as down, such as 50%.", Schema: percentSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.Breaker.FailureRate = readPercent(at) },
	},
	{
		Name: "window", Doc: "Time window over which the shares are computed.", Schema: strictyaml.DurationSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.Breaker.Window = strictyaml.ReadDuration(at) },
	},
	{ // after window, which gives it another meaning
		Name: "of-last", Doc: "Number of most recent requests over which the shares are computed; together with window, the fewest requests in the window.", Schema: strictyaml.IntSchema(1),
		Set: func(_ *providerReader, at place, d *providerDraft) {
			n := strictyaml.ReadInt(at, 1)
			if d.Breaker.MinCalls = n; !d.has("breaker.window") {
				d.Breaker.Window, d.Breaker.WindowCalls, d.Breaker.MinCalls = 0, n, 0
			}
		},
	},
	{
		Name: "consecutive", Doc: "Consecutive failures at which the provider counts as down; 0 for no limit.", Schema: strictyaml.IntSchema(0),
		Set: func(_ *providerReader, at place, d *providerDraft) {
			d.Breaker.ConsecutiveFailures = strictyaml.ReadInt(at, 0)
		},
	},
	{
		Name: "open-for", Doc: "Shortest wait before the next probe of a provider that is down.", Schema: strictyaml.DurationSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.OpenFor = strictyaml.ReadDuration(at) },
	},
	{
		Name: "slow", Doc: "A request is slow if its response takes at least this long to begin. Default: no request is slow.", Schema: strictyaml.DurationSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.Breaker.SlowCall = strictyaml.ReadDuration(at) },
	},
	{
		Name: "slow-rate", Doc: "Share of slow requests at which the provider counts as down. Default: 80%.", Schema: percentSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.Breaker.SlowRate = readPercent(at) },
	},
})

var streamKeys = located("stream.", []key[*providerReader, providerDraft]{
	{
		Name: "hold", Doc: "How long a stream is held back until its first content, so that the request can still be retried; none to pass it on at once.", Schema: durationOrNoneSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.StreamHold = durationOrNone(at) },
	},
	{
		Name: "idle", Doc: "Longest pause within a response; none for no limit.", Schema: durationOrNoneSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.StreamIdle = durationOrNone(at) },
	},
})

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
