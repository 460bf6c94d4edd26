package config

import (
	"fmt"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// The bounds of a limit: just above that of a layer that never retries, and one that no
// layer reaches, which disables the alarm.
const (
	minAmplification = 1.1
	maxAmplification = 1e6
)

// readFactor reads the number of attempts for each first attempt.
func readFactor(at place) float64 {
	n := at.Node
	if n.Kind != strictyaml.KindInt && n.Kind != strictyaml.KindFloat && n.Origin == "" {
		at.Bad("%v, where a number is expected", n.Kind)
		return 0
	}
	f, err := strconv.ParseFloat(fmt.Sprint(n.Value), 64)
	if err != nil || !(f >= minAmplification && f <= maxAmplification) { // which is not the same for NaN
		at.Bad("%s is not a number from %v to %v; 1 means a layer that never retries", n.Text, minAmplification, int(maxAmplification))
		return 0
	}
	at.Record(n.Text)
	return f
}

func factorSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"number", "integer"}, Minimum: new(minAmplification), Maximum: new(maxAmplification)}
}

// stormKeys are the keys of the section alarm.
func stormKeys(r *storm.Rule) []key {
	return []key{
		strictyaml.Field(&r.Amplification, "amplification", "2", factorSchema, readFactor,
			"Alarm threshold: attempts per first attempt of a workflow or a provider."),
		strictyaml.Duration(&r.For, "for", "30s",
			"How long the threshold must be exceeded before the alarm starts, and how long it must hold again before the alarm ends. Attempts are counted over half of this time."),
		strictyaml.Int(&r.MinAttempts, "min-attempts", "50", 1, "Fewest attempts in that half for an alarm."),
	}
}
