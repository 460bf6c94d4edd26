package config

import (
	"fmt"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// storms reads the section. There is an alarm also when the file does not speak of
// it.
func (l *loader) storms(at strictyaml.Place, r *storm.Rule) {
	if at.Node.Kind == strictyaml.KindNull {
		at.Node = strictyaml.NewMap()
	}
	strictyaml.Object(l, at, stormKeys, r)
}

// The bounds of a limit: just above what a layer has that never retries, and what
// none reaches, for those who want no alarm.
const (
	minAmplification = 1.1
	maxAmplification = 1e6
)

// factor reads how many attempts there are for each first one.
func (l *loader) factor(at strictyaml.Place) float64 {
	n := at.Node
	if n.Kind != strictyaml.KindInt && n.Kind != strictyaml.KindFloat && n.Origin == "" {
		at.Bad("%v, where a number is expected", n.Kind)
		return 0
	}
	f, err := strconv.ParseFloat(fmt.Sprint(n.Value), 64)
	if err != nil || !(f >= minAmplification && f <= maxAmplification) { // which is not the same for NaN
		at.Bad("%s is not a number from %v to %v; 1 is a layer that never retries", n.Text, minAmplification, int(maxAmplification))
		return 0
	}
	at.Record(n.Text)
	return f
}

var stormKeys = []strictyaml.Key[*loader, storm.Rule]{
	{
		Name: "amplification", Default: "2", Doc: "Attempts for each first attempt of a workflow or a provider, above which retries are a storm.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Types: []string{"number", "integer"}, Minimum: new(minAmplification), Maximum: new(maxAmplification)}
		},
		Set: func(l *loader, at strictyaml.Place, r *storm.Rule) { r.Amplification = l.factor(at) },
	},
	{
		Name: "for", Default: "30s", Doc: "How long that must last before there is an alarm, and be over before it ends; attempts are counted over half of it.", Schema: strictyaml.DurationSchema,
		Set: func(l *loader, at strictyaml.Place, r *storm.Rule) { r.For = strictyaml.ReadDuration(at) },
	},
	{
		Name: "min-attempts", Default: "50", Doc: "Attempts in that half, below which there is no alarm.", Schema: strictyaml.IntSchema(1),
		Set: func(l *loader, at strictyaml.Place, r *storm.Rule) { r.MinAttempts = strictyaml.ReadInt(at, 1) },
	},
}
