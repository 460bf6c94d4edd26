package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/internal/oneline"
)

// existing reads the path of something that must be there.
func (l *loader) existing(at strictyaml.Place) string {
	s, ok := at.Text()
	if !ok {
		return ""
	}
	path := l.path(at, s)
	if _, err := os.Stat(path); err != nil {
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err // the path is told as it is written
		}
		at.Bad("%q: %v", s, err)
		return ""
	}
	at.Record(path)
	return path
}

// fit reads the path of something that must be there and be what it is taken for.
func (l *loader) fit(at strictyaml.Place, set func(*jetstream.Config, string)) string {
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
func (l *loader) misfit(at strictyaml.Place, path string, err error) {
	_, text, _ := strings.Cut(oneline.Text(err.Error()), ": ") // the name of the field is said already
	at.Bad("%s", strings.ReplaceAll(text, path, at.Node.Text))
}

// folder reads the path of the second place.
func (l *loader) folder(at strictyaml.Place) string {
	s, ok := at.Text()
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
	at.Record(path)
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
		l.second.Bad("%q is in server.data, which every process has for itself; name a folder on another disk, the same for all", l.second.Node.Text)
	}
}

// tls reads the files for a connection.
func (l *loader) tls(at strictyaml.Place, t *TLS) {
	if at.Node.Kind == strictyaml.KindNull {
		return
	}
	found, _ := strictyaml.Object(l, at, tlsKeys, t)
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

var tlsKeys = []strictyaml.Key[*loader, TLS]{
	{
		Name: "ca", Doc: "Certificates of the authorities that servers may have theirs from, as PEM; those of the system unless said.", Schema: strictyaml.ScalarSchema,
		Set: func(l *loader, at strictyaml.Place, t *TLS) { t.CA = l.existing(at) },
	},
	{
		Name: "cert", Doc: "Certificate of this process, as PEM.", Schema: strictyaml.ScalarSchema,
		Set: func(l *loader, at strictyaml.Place, t *TLS) { t.Cert = l.existing(at) },
	},
	{
		Name: "key", Doc: "Path of the key of the certificate, as PEM.", Schema: strictyaml.ScalarSchema,
		Set: func(l *loader, at strictyaml.Place, t *TLS) { t.Key = l.existing(at) },
	},
}
