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
	if at.Empty() {
		at.Node = strictyaml.NewMap()
	}
	found, _ := strictyaml.Object(r, at, auditKeys, a)
	if _, ok := found["file"]; !ok {
		a.File = filepath.Join(data, "audit.jsonl")
		at.RecordDefault("file", a.File)
	}
}

var auditKeys = []key[*sharedReader, Audit]{
	{
		Name: "file", Doc: "Path of the audit log, relative to the folder of this file. Default: audit.jsonl in server.data.", Schema: strictyaml.ScalarSchema,
		Set: func(r *sharedReader, at place, a *Audit) {
			if s, ok := at.Text(); ok {
				a.File = r.path(at, s)
				at.Record(a.File)
			}
		},
	},
	{
		Name: "max-size", Default: "10MB", Doc: "Size at which the audit log is rotated.", Schema: strictyaml.SizeSchema,
		Set: func(_ *sharedReader, at place, a *Audit) { a.MaxSize = strictyaml.ReadSize(at) },
	},
	{
		Name: "keep", Default: "5", Doc: "Rotated audit logs to keep; 0 keeps none.", Schema: strictyaml.IntSchema(0),
		Set: func(_ *sharedReader, at place, a *Audit) { a.Keep = strictyaml.ReadInt(at, 0) },
	},
	{
		Name: "off", Doc: "Whether the audit log is disabled.",
		Schema: strictyaml.BoolSchema,
		Set:    func(_ *sharedReader, at place, a *Audit) { a.Off = strictyaml.ReadBool(at) },
	},
}

// readTracing reads the section tracing.
func readTracing(r *sharedReader, at place) *tracing.Config {
	t := new(tracing.Config)
	strictyaml.Object(r, at, tracingKeys, t)
	return t
}

var tracingKeys = []key[*sharedReader, tracing.Config]{
	{
		Name: "endpoint", Required: true, Doc: "Base URL of an OTLP/HTTP receiver, such as http://127.0.0.1:4318; /v1/traces is appended. May contain references.", Schema: strictyaml.TextSchema,
		Set: func(r *sharedReader, at place, t *tracing.Config) { t.Endpoint = r.secretURL(at) },
	},
	{
		Name: "headers", Doc: "HTTP headers of each request. Values may contain references.", Schema: headersSchema,
		Set: func(r *sharedReader, at place, t *tracing.Config) { t.Headers = r.SecretMap(at, headerNames()) },
	},
}
