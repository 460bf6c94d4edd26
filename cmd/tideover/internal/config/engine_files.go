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

// checkedPath returns a function that reads the path of something that must be there and
// be valid in the settings that config returns for it.
func (r *engineReader) checkedPath(config func(path string) jetstream.Config) func(at place) string {
	return func(at place) string {
		path := r.existing(at)
		c := config(path)
		c.URL = "nats://localhost"
		if err := c.Validate(); path != "" && err != nil {
			misfit(at, path, err)
			return ""
		}
		return path
	}
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
	found, _ := strictyaml.Object(at, r.tlsKeys(t))
	checkPair(found, "cert", "key")
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

func (r *engineReader) tlsKeys(t *cluster.TLS) []key {
	return []key{
		strictyaml.Field(&t.CA, "ca", "", strictyaml.ScalarSchema, r.existing,
			"Certificates of the authorities that sign the servers' certificates, as PEM. Default: the authorities of the operating system."),
		strictyaml.Field(&t.Cert, "cert", "", strictyaml.ScalarSchema, r.existing,
			"Path of the certificate of this process, as PEM."),
		strictyaml.Field(&t.Key, "key", "", strictyaml.ScalarSchema, r.existing,
			"Path of the certificate's private key, as PEM."),
	}
}
