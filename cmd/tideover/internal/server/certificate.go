package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// certificate is the one that the server shows. It is another as soon as there is
// another one in its files that can be used; connections that there are stay.
type certificate struct {
	files config.ServerTLS
	log   *slog.Logger
	again chan struct{} // has something in it when the files shall be read now

	settled string   // what was in the files when they were last taken over, or refused
	half    string   // what was in them when they were last of no use
	said    []string // the last warnings

	mu      sync.Mutex
	current *tls.Certificate
	refused error
}

// newCertificate reads the files, which must be good at the start.
func newCertificate(files config.ServerTLS, log *slog.Logger) (*certificate, error) {
	c := &certificate{files: files, log: log, again: make(chan struct{}, 1), settled: files.Fingerprint()}
	var err error
	c.current, err = files.Load(time.Now())
	return c, err
}

// config returns how connections are made: as Go has it, and never with less than
// TLS 1.2. There is no HSTS: browsers would have it for all ports of the host, on
// which others may speak no TLS. On this one nobody can speak without.
func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, _ := c.shown()
		return pair, nil
	}}
}

// shown returns what is shown, and why it is not what is in the files.
func (c *certificate) shown() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, c.refused
}

// reload has the files read soon. It does not wait.
func (c *certificate) reload() {
	select {
	case c.again <- struct{}{}:
	default: // it is due already
	}
}

// lookEvery is how often the files are looked at. Polling works on every file system,
// and across the links by which some renew them.
const lookEvery = time.Second

// run follows changes of the files until the context ends. What door finds is a
// warning each time that it is something else, which is once a day.
func (c *certificate) run(ctx context.Context, door func() doctor.Door) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		d := door()
		d.Refused = nil // which is said when it happens
		c.warn(d.Check(time.Now()))
		select {
		case <-ctx.Done():
			return nil
		case <-c.again:
		case <-tick.C:
		}
		c.look(time.Now())
	}
}

// look takes over what is in the files, if that is new and can be used. What can't is
// looked at twice before that is said: somebody may have written one file of two.
func (c *certificate) look(now time.Time) {
	found := c.files.Fingerprint()
	if found == c.settled {
		return
	}
	pair, err := c.files.Load(now)
	switch {
	case err == nil:
		c.settled = found
		c.set(pair, nil)
		c.log.Info("certificate loaded", "until", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case found == c.half:
		c.settled = found
		c.refuse(err)
	}
	c.half = found
}

// refuse says in one line why the certificate stays as it was.
func (c *certificate) refuse(err error) {
	pair, _ := c.shown()
	c.set(pair, err)
	first, more := strictyaml.Brief(err)
	attrs := []any{"error", first}
	if more > 0 {
		attrs = append(attrs, "more", more)
	}
	c.log.Error("the certificate stays as it was", attrs...)
}

func (c *certificate) set(pair *tls.Certificate, refused error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current, c.refused = pair, refused
}

// warn says what was found, unless that was said last.
func (c *certificate) warn(list []doctor.Finding) {
	said := make([]string, len(list))
	for i, f := range list {
		said[i] = f.What
	}
	if slices.Equal(said, c.said) {
		return
	}
	c.said = said
	for _, f := range list {
		c.log.Warn(f.What, "do", f.Do)
	}
}
