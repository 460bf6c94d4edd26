package config

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/tracing"
)

// Audit configures the audit log, a file to which all events are written.
type Audit struct {
	File    string // absolute
	MaxSize int64  // bytes; the file is rotated before it would become larger
	Keep    int    // rotated files to keep, in addition to the current one
	Off     bool
}

// readAudit reads the section audit. If the file does not have the section, all keys get their
// defaults. data is the data folder of the server.
func readAudit(r *sharedReader, at place, a *Audit, data string) {
	found, _ := strictyaml.Object(orMap(at), auditKeys(r, a))
	if _, ok := found["file"]; !ok {
		a.File = filepath.Join(data, "audit.jsonl")
		at.RecordDefault("file", a.File)
	}
}

func auditKeys(r *sharedReader, a *Audit) []key {
	return []key{
		strictyaml.Field(&a.File, "file", "", strictyaml.ScalarSchema, r.filePath,
			"Path of the audit log, relative to the folder of this file. Default: audit.jsonl in server.data."),
		strictyaml.Size(&a.MaxSize, "max-size", "10MB", "Size at which the audit log is rotated."),
		strictyaml.Int(&a.Keep, "keep", "5", 0, "Rotated audit logs to keep; 0 keeps none."),
		strictyaml.Bool(&a.Off, "off", "Whether the audit log is disabled."),
	}
}

func tracingKeys(r *sharedReader, t *tracing.Config) []key {
	return []key{
		strictyaml.Required(strictyaml.Field(&t.Endpoint, "endpoint", "", strictyaml.TextSchema, r.secretURL,
			"Base URL of an OTLP/HTTP receiver, such as http://127.0.0.1:4318; /v1/traces is appended. May contain references.")),
		strictyaml.Field(&t.Headers, "headers", "", headersSchema, r.secretHeaders,
			"HTTP headers of each request. Values may contain references."),
	}
}

// The range of amplification, the attempts per first attempt. A layer that never retries
// has 1. No layer reaches the maximum, so the maximum disables the alarm.
const (
	minAmplification = 1.1
	maxAmplification = 1e6
)

// readFactor reads an amplification: attempts per first attempt.
func readFactor(at place) float64 {
	n := at.Node
	if n.Kind != strictyaml.KindInt && n.Kind != strictyaml.KindFloat && n.Origin == "" {
		at.Bad("%v, where a number is expected", n.Kind)
		return 0
	}
	f, err := strconv.ParseFloat(fmt.Sprint(n.Value), 64)
	if err != nil || !(f >= minAmplification && f <= maxAmplification) { // negated, so that NaN is refused too
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
			"How long the threshold must be exceeded before the alarm starts, and must hold before it ends. Attempts are counted over half of this time."),
		strictyaml.Int(&r.MinAttempts, "min-attempts", "50", 1, "Fewest attempts in that half for an alarm."),
	}
}
