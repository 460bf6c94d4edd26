package config

import (
	"fmt"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/storm"
)

// storms reads the section. There is an alarm also when the file does not speak of
// it.
func (l *loader) storms(at place, r *storm.Rule) {
	if at.node.kind == nullKind {
		at.node = &node{kind: mapKind}
	}
	object(l, at, stormKeys, r)
}

// The bounds of a limit: just above what a layer has that never retries, and what
// none reaches, for those who want no alarm.
const (
	minAmplification = 1.1
	maxAmplification = 1e6
)

// factor reads how many attempts there are for each first one.
func (l *loader) factor(at place) float64 {
	n := at.node
	if n.kind != intKind && n.kind != floatKind && n.origin == "" {
		l.bad(at, "%v, where a number is expected", n.kind)
		return 0
	}
	f, err := strconv.ParseFloat(fmt.Sprint(n.value), 64)
	if err != nil || !(f >= minAmplification && f <= maxAmplification) { // which is not the same for NaN
		l.bad(at, "%s is not a number from %v to %v; 1 is a layer that never retries", n.text, minAmplification, int(maxAmplification))
		return 0
	}
	l.value(at, n.text)
	return f
}

var stormKeys = []key[storm.Rule]{
	{
		name: "amplification", def: "2", doc: "Attempts for each first attempt of a workflow or a provider, above which retries are a storm.",
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Types: []string{"number", "integer"}, Minimum: new(minAmplification), Maximum: new(maxAmplification)}
		},
		set: func(l *loader, at place, r *storm.Rule) { r.Amplification = l.factor(at) },
	},
	{
		name: "for", def: "30s", doc: "How long that must last before there is an alarm, and be over before it ends; attempts are counted over half of it.", schema: durationSchema,
		set: func(l *loader, at place, r *storm.Rule) { r.For = l.duration(at) },
	},
	{
		name: "min-attempts", def: "50", doc: "Attempts in that half, below which there is no alarm.", schema: count(1),
		set: func(l *loader, at place, r *storm.Rule) { r.MinAttempts = l.number(at, 1) },
	},
}
