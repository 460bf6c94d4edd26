package config

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/cluster"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/internal/oneline"
)

// existing reads the path of something that must be there.
func (r *engineReader) existing(at place) string {
	s, ok := at.Text()
	if !ok {
		return ""
	}
	path := r.path(at, s)
	if _, err := os.Stat(path); err != nil {
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err // the message has the path as it is written
		}
		at.Bad("%q: %v", s, err)
		return ""
	}
	at.Record(path)
	return path
}

// fit reads the path of something that must be there and be what it is taken for.
func (r *engineReader) fit(at place, set func(*jetstream.Config, string)) string {
	path := r.existing(at)
	if path == "" {
		return ""
	}
	c := jetstream.Config{URL: "nats://localhost"}
	set(&c, path)
	if err := c.Validate(); err != nil {
		misfit(at, path, err)
		return ""
	}
	return path
}

// misfit records what is wrong with a file, with its path as it is written.
func misfit(at place, path string, err error) {
	_, text, _ := strings.Cut(oneline.Text(err.Error()), ": ") // without the name of the field
	at.Bad("%s", strings.ReplaceAll(text, path, at.Node.Text))
}

// folder reads the path of the second place.
func (r *engineReader) folder(at place) string {
	s, ok := at.Text()
	if !ok {
		return ""
	}
	path := r.path(at, s)
	if s == "" {
		return "" // which was refused
	}
	if err := (jetstream.Config{URL: "nats://localhost", SecondPlace: path}).Validate(); err != nil {
		misfit(at, path, err)
		return ""
	}
	at.Record(path)
	return path
}

// tls reads the files for a connection.
func (r *engineReader) tls(at place, t *cluster.TLS) {
	if at.Node.Kind == strictyaml.KindNull {
		return
	}
	found, _ := strictyaml.Object(r, at, tlsKeys, t)
	checkPairs(found, [][2]string{{"cert", "key"}, {"key", "cert"}})
	if t.CA != "" {
		if _, err := (cluster.TLS{CA: t.CA}).Config(); err != nil {
			misfit(found["ca"], t.CA, err)
		}
	}
	if t.Cert != "" && t.Key != "" {
		if _, err := (cluster.TLS{Cert: t.Cert, Key: t.Key}).Config(); err != nil {
			misfit(found["cert"], t.Cert, err)
		}
	}
}

var tlsKeys = []key[*engineReader, cluster.TLS]{
	{
		Name: "ca", Doc: "Certificates of the authorities that sign the servers' certificates, as PEM. Default: the authorities of the operating system.", Schema: strictyaml.ScalarSchema,
		Set: func(r *engineReader, at place, t *cluster.TLS) { t.CA = r.existing(at) },
	},
	{
		Name: "cert", Doc: "Path of the certificate of this process, as PEM.", Schema: strictyaml.ScalarSchema,
		Set: func(r *engineReader, at place, t *cluster.TLS) { t.Cert = r.existing(at) },
	},
	{
		Name: "key", Doc: "Path of the certificate's private key, as PEM.", Schema: strictyaml.ScalarSchema,
		Set: func(r *engineReader, at place, t *cluster.TLS) { t.Key = r.existing(at) },
	},
}
