package config

import (
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/limit"
)

var rateKeys = located("rate.", []key[providerDraft]{
	{
		name: "requests", doc: "Requests in a stretch of time, such as 50/min, with the units s, min, h and d, or a duration; no limit unless said.",
		schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Pattern: frequencyPattern} },
		set: func(l *loader, at place, d *providerDraft) {
			s, ok := l.scalar(at)
			if !ok {
				return
			}
			var err error
			if d.Rate, err = limit.ParseRate(s); err != nil {
				l.bad(at, "%v", err)
				return
			}
			l.value(at, s)
		},
	},
	{
		name: "burst", doc: "Requests that may follow each other at once; 1 unless said.", schema: count(1),
		set: func(l *loader, at place, d *providerDraft) { d.Burst = l.number(at, 1) },
	},
	{
		name: "concurrent", doc: "Requests at once; no limit unless said.", schema: count(1),
		set: func(l *loader, at place, d *providerDraft) { d.Concurrent = l.number(at, 1) },
	},
	{
		name: "queue", doc: "Requests that may wait for their turn, or for the provider to come back.", schema: count(1),
		set: func(l *loader, at place, d *providerDraft) { d.Queue = l.number(at, 1) },
	},
	{
		name: "adaptive", doc: "Whether to find out from the answer 429 how often it may be asked.", schema: boolSchema,
		set: func(l *loader, at place, d *providerDraft) { d.Adaptive = l.truth(at) },
	},
})

// rateExample returns the text if it is a rate, or else one that is.
func rateExample(text string) string {
	if _, err := limit.ParseRate(text); err != nil {
		return "50/min"
	}
	return text
}

const frequencyPattern = `^0*[1-9][0-9]*/(s|min|h|d|0*[1-9][0-9]*d|(` + hoursPattern + `)+)$`

var breakerKeys = located("breaker.", []key[providerDraft]{
	{
		name: "failures", doc: "Share of failed requests at which it counts as down, such as 50%.", schema: percentSchema,
		set: func(l *loader, at place, d *providerDraft) { d.Breaker.FailureRate = l.percent(at) },
	},
	{
		name: "window", doc: "The shares are those of the requests of so long.", schema: durationSchema,
		set: func(l *loader, at place, d *providerDraft) { d.Breaker.Window = l.duration(at) },
	},
	{ // after window, which gives it another meaning
		name: "of-last", doc: "The shares are those of the last so many requests; together with window, of at least so many in it.", schema: count(1),
		set: func(l *loader, at place, d *providerDraft) {
			n := l.number(at, 1)
			if d.Breaker.MinCalls = n; !d.has("breaker.window") {
				d.Breaker.Window, d.Breaker.WindowCalls, d.Breaker.MinCalls = 0, n, 0
			}
		},
	},
	{
		name: "consecutive", doc: "Failures in a row at which it counts as down; 0 for any number.", schema: count(0),
		set: func(l *loader, at place, d *providerDraft) { d.Breaker.ConsecutiveFailures = l.number(at, 0) },
	},
	{
		name: "open-for", doc: "How long to leave it alone at least before looking again.", schema: durationSchema,
		set: func(l *loader, at place, d *providerDraft) { d.OpenFor = l.duration(at) },
	},
	{
		name: "slow", doc: "A request whose answer takes so long to begin is slow; none is unless said.", schema: durationSchema,
		set: func(l *loader, at place, d *providerDraft) { d.Breaker.SlowCall = l.duration(at) },
	},
	{
		name: "slow-rate", doc: "Share of slow requests at which it counts as down; 80% unless said.", schema: percentSchema,
		set: func(l *loader, at place, d *providerDraft) { d.Breaker.SlowRate = l.percent(at) },
	},
})

var streamKeys = located("stream.", []key[providerDraft]{
	{
		name: "hold", doc: "How long a stream is held back for its first content, because until then it can be asked for again; none for not at all.", schema: durationOrNoneSchema,
		set: func(l *loader, at place, d *providerDraft) { d.StreamHold = l.durationOrNone(at) },
	},
	{
		name: "idle", doc: "The longest silence within an answer; none for any.", schema: durationOrNoneSchema,
		set: func(l *loader, at place, d *providerDraft) { d.StreamIdle = l.durationOrNone(at) },
	},
})

// saysNone reports whether the word for no limit stands at the place.
func (l *loader) saysNone(at place) bool {
	none := at.node.kind == stringKind && at.node.text == "none"
	if none {
		l.value(at, "none")
	}
	return none
}

func durationOrNoneSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: "^(none|" + durationPattern + ")$", AllOf: []*jsonschema.Schema{{Pattern: abovePattern + "|^none$"}}}
}

// durationOrNone reads a duration above zero. None is below zero, because zero is
// what the gateway fills in.
func (l *loader) durationOrNone(at place) time.Duration {
	if l.saysNone(at) {
		return -1
	}
	return l.duration(at)
}

func sizeOrNoneSchema() *jsonschema.Schema {
	s := sizeSchema()
	s.Pattern = "^none$|" + s.Pattern
	return s
}

// bytesOrNone is durationOrNone for a number of bytes.
func (l *loader) bytesOrNone(at place) int64 {
	if l.saysNone(at) {
		return -1
	}
	return l.bytes(at)
}

var percentForm = lazyregexp.New(`^0*(100(\.0*)?|[0-9]{1,2}(\.[0-9]*)?|\.[0-9]+)%$`)

func percentSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: percentForm.String(), AllOf: []*jsonschema.Schema{{Pattern: abovePattern}}}
}

// percent reads a share above zero.
func (l *loader) percent(at place) float64 {
	s, ok := l.scalar(at)
	if !ok {
		return 0
	}
	n, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || n == 0 || !percentForm.MatchString(s) {
		l.bad(at, "%q is not a share above zero such as 50%%", s)
		return 0
	}
	l.value(at, s)
	return n / 100
}
