package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/internal/oneline"
)

// existing reads the path of something that must be there.
func (l *loader) existing(at place) string {
	s, ok := l.scalar(at)
	if !ok {
		return ""
	}
	path := l.path(at, s)
	if _, err := os.Stat(path); err != nil {
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err // the path is told as it is written
		}
		l.bad(at, "%q: %v", s, err)
		return ""
	}
	l.value(at, path)
	return path
}

// fit reads the path of something that must be there and be what it is taken for.
func (l *loader) fit(at place, set func(*jetstream.Config, string)) string {
	path := l.existing(at)
	if path == "" {
		return ""
	}
	c := jetstream.Config{URL: "nats://localhost"}
	set(&c, path)
	if err := c.Validate(); err != nil {
		l.misfit(at, path, err)
		return ""
	}
	return path
}

// misfit tells what is wrong with a path, as it is written.
func (l *loader) misfit(at place, path string, err error) {
	_, text, _ := strings.Cut(oneline.Text(err.Error()), ": ") // the name of the field is said already
	l.bad(at, "%s", strings.ReplaceAll(text, path, at.node.text))
}

// folder reads the path of the second place.
func (l *loader) folder(at place) string {
	s, ok := l.scalar(at)
	if !ok {
		return ""
	}
	path := l.path(at, s)
	if s == "" {
		return "" // which was refused
	}
	if err := (jetstream.Config{URL: "nats://localhost", SecondPlace: path}).Validate(); err != nil {
		l.misfit(at, path, err)
		return ""
	}
	l.value(at, path)
	return path
}

// apart refuses a second place that is lost with the data folder.
func (l *loader) apart(data string) {
	second := l.cfg.Engine.SecondPlace
	if second == "" || data == "" {
		return
	}
	rel, err := filepath.Rel(data, second)
	if err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		l.bad(l.second, "%q is in server.data, which every process has for itself; name a folder on another disk, the same for all", l.second.node.text)
	}
}

// tls reads the files for a connection.
func (l *loader) tls(at place, t *TLS) {
	if at.node.kind == nullKind {
		return
	}
	found, _ := object(l, at, tlsKeys, t)
	l.paired(found, [][2]string{{"cert", "key"}, {"key", "cert"}})
	if t.CA != "" {
		if _, err := (TLS{CA: t.CA}).config(); err != nil {
			l.misfit(found["ca"], t.CA, err)
		}
	}
	if t.Cert != "" && t.Key != "" {
		if _, err := (TLS{Cert: t.Cert, Key: t.Key}).config(); err != nil {
			l.misfit(found["cert"], t.Cert, err)
		}
	}
}

var tlsKeys = []key[TLS]{
	{
		name: "ca", doc: "Certificates of the authorities that servers may have theirs from, as PEM; those of the system unless said.", schema: scalarSchema,
		set: func(l *loader, at place, t *TLS) { t.CA = l.existing(at) },
	},
	{
		name: "cert", doc: "Certificate of this process, as PEM.", schema: scalarSchema,
		set: func(l *loader, at place, t *TLS) { t.Cert = l.existing(at) },
	},
	{
		name: "key", doc: "Path of the key of the certificate, as PEM.", schema: scalarSchema,
		set: func(l *loader, at place, t *TLS) { t.Key = l.existing(at) },
	},
}
