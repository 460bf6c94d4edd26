package config

import (
	"path/filepath"

	"github.com/google/jsonschema-go/jsonschema"
)

// Audit is the trail of events on the disk.
type Audit struct {
	File    string // absolute
	MaxSize int64  // bytes; a file that would outgrow it is put aside
	Keep    int    // files that are kept beside the one that is written
	Off     bool
}

// audit reads the section. There is a trail also when the file does not speak of
// it.
func (l *loader) audit(at place, a *Audit) {
	if at.node.kind == nullKind {
		at.node = &node{kind: mapKind}
	}
	found, _ := object(l, at, auditKeys, a)
	if _, ok := found["file"]; !ok {
		a.File = filepath.Join(l.cfg.Server.Data, "audit.jsonl")
		l.value(at.child("file", given("", "default")), a.File)
	}
}

var auditKeys = []key[Audit]{
	{
		name: "file", doc: "Path of the trail, relative to the file's folder; audit.jsonl in the server's data unless said.", schema: scalarSchema,
		set: func(l *loader, at place, a *Audit) {
			if s, ok := l.scalar(at); ok {
				a.File = l.path(at, s)
				l.value(at, a.File)
			}
		},
	},
	{
		name: "max-size", def: "10MB", doc: "Size at which the trail is put aside and a new one begun.", schema: sizeSchema,
		set: func(l *loader, at place, a *Audit) { a.MaxSize = l.bytes(at) },
	},
	{
		name: "keep", def: "5", doc: "Trails that are kept beside the current one; 0 for none.", schema: count(0),
		set: func(l *loader, at place, a *Audit) { a.Keep = l.number(at, 0) },
	},
	{
		name: "off", doc: "Whether no trail is kept.",
		schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} },
		set: func(l *loader, at place, a *Audit) {
			if at.node.kind != boolKind {
				l.bad(at, "%v, where true or false is expected", at.node.kind)
				return
			}
			a.Off = at.node.value == true
			l.value(at, at.node.text)
		},
	},
}
