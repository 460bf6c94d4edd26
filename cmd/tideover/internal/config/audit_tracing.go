package config

import (
	"path/filepath"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/tracing"
)

// Audit is the trail of events on the disk.
type Audit struct {
	File    string // absolute
	MaxSize int64  // bytes; a file that would outgrow it is put aside
	Keep    int    // files that are kept beside the one that is written
	Off     bool
}

// readAudit reads the section audit. There is a trail also if the file does not have it. data
// is the data folder of the server.
func readAudit(r *sharedReader, at place, a *Audit, data string) {
	found, _ := strictyaml.Object(at.OrMap(), r.auditKeys(a))
	if _, ok := found["file"]; !ok {
		a.File = filepath.Join(data, "audit.jsonl")
		at.RecordDefault("file", a.File)
	}
}

func (r *sharedReader) auditKeys(a *Audit) []key {
	return []key{
		strictyaml.Field(&a.File, "file", "", strictyaml.ScalarSchema, r.filePath,
			"Path of the audit log, relative to the folder of this file. Default: audit.jsonl in server.data."),
		strictyaml.Size(&a.MaxSize, "max-size", "10MB", "Size at which the audit log is rotated."),
		strictyaml.Int(&a.Keep, "keep", "5", 0, "Rotated audit logs to keep; 0 keeps none."),
		strictyaml.Bool(&a.Off, "off", "Whether the audit log is disabled."),
	}
}

// tracing reads the section tracing.
func (r *sharedReader) tracing(at place) *tracing.Config {
	t := new(tracing.Config)
	strictyaml.Object(at, r.tracingKeys(t))
	return t
}

func (r *sharedReader) tracingKeys(t *tracing.Config) []key {
	return []key{
		strictyaml.Required(strictyaml.Field(&t.Endpoint, "endpoint", "", strictyaml.TextSchema, r.secretURL,
			"Base URL of an OTLP/HTTP receiver, such as http://127.0.0.1:4318; /v1/traces is appended. May contain references.")),
		strictyaml.Field(&t.Headers, "headers", "", headersSchema, r.secretHeaders,
			"HTTP headers of each request. Values may contain references."),
	}
}
