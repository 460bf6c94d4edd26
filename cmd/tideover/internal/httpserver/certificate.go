package httpserver

import (
	"context"
	"crypto/tls"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// CertificateFiles are the files that a certificate is read from.
type CertificateFiles interface {
	// Fingerprint returns a text that changes whenever the content of the files changes.
	Fingerprint() string

	// Load reads and checks the files.
	Load(now time.Time) (*tls.Certificate, error)
}

// Warning describes a problem with the certificate, and what to do about it.
type Warning struct{ What, Do string }

// Certificate is the TLS certificate of a server. When its files change, [Certificate.Run] loads the
// new pair, if it is valid. Open connections keep the old one.
type Certificate struct {
	files   CertificateFiles
	log     *slog.Logger
	trigger chan struct{} // makes Run read the files now

	loaded   string    // fingerprint of the files that were last loaded
	unusable string    // fingerprint of the files that the last poll could not load; "" for none
	warned   []Warning // the warnings that were logged last

	state atomic.Pointer[certificateState]
}

type certificateState struct {
	current  *tls.Certificate
	rejected error // why newer files were rejected; nil if they were loaded
}

// NewCertificate loads the files, and returns an error if they are not valid.
func NewCertificate(files CertificateFiles, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{files: files, log: log, trigger: make(chan struct{}, 1), loaded: files.Fingerprint()}
	pair, err := files.Load(time.Now())
	c.state.Store(&certificateState{pair, nil})
	return c, err
}

// TLSConfig returns a configuration with this certificate, Go's defaults, and at least TLS 1.2.
// Servers send no HSTS header: browsers would apply it to all ports of the host, and other ports may
// not use TLS. This port accepts only TLS in any case.
func (c *Certificate) TLSConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, _ := c.Current()
		return pair, nil
	}}
}

// Current returns the certificate in use. The error says why newer files were rejected; nil means
// that the certificate in use is the one in the files.
func (c *Certificate) Current() (*tls.Certificate, error) {
	s := c.state.Load()
	return s.current, s.rejected
}

// Reload makes Run read the files now. It does not wait.
func (c *Certificate) Reload() {
	select {
	case c.trigger <- struct{}{}:
	default: // requested already
	}
}

// pollInterval is how often Run reads the files. Unlike notifications, polling works on every file
// system, and with symbolic links that a tool replaces.
const pollInterval = time.Second

// Run loads the files whenever they change, until the context ends. It logs the warnings that check
// returns whenever they change. A warning that contains the days until the expiry is therefore
// logged once a day.
func (c *Certificate) Run(ctx context.Context, check func() []Warning) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		c.warn(check())
		select {
		case <-ctx.Done():
			return nil
		case <-c.trigger:
		case <-tick.C:
		}
		c.poll(time.Now())
	}
}

// poll loads the files if they are not those that were loaded last. It rejects files only if the next
// poll can't load them either: another process may have written only one of the two so far. Rejected
// files are tried again at every poll: they may become valid without a change of their content, for
// example by another mode.
func (c *Certificate) poll(now time.Time) {
	found := c.files.Fingerprint()
	_, rejected := c.Current()
	if found == c.loaded && rejected == nil {
		return
	}
	pair, err := c.files.Load(now)
	switch {
	case err == nil:
		c.loaded, c.unusable = found, ""
		c.state.Store(&certificateState{pair, nil})
		c.log.Info("certificate loaded", "until", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
		return
	case found == c.unusable && (rejected == nil || rejected.Error() != err.Error()):
		c.reject(err)
	}
	c.unusable = found
}

// reject keeps the current certificate, and logs in one line why the files were rejected.
func (c *Certificate) reject(err error) {
	pair, _ := c.Current()
	c.state.Store(&certificateState{pair, err})
	first, more := strictyaml.Brief(err)
	attrs := []any{"error", first}
	if more > 0 {
		attrs = append(attrs, "more", more)
	}
	c.log.Error("the certificate was not reloaded", attrs...)
}

// warn logs the warnings unless they are the same as last time.
func (c *Certificate) warn(list []Warning) {
	if slices.Equal(list, c.warned) {
		return
	}
	c.warned = list
	for _, w := range list {
		c.log.Warn(w.What, "do", w.Do)
	}
}
