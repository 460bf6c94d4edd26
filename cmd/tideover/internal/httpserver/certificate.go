package httpserver

import (
	"context"
	"crypto/tls"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// CertificateFiles are the files that a certificate is read from.
type CertificateFiles interface {
	// Fingerprint returns a text that differs whenever the content of the files does.
	Fingerprint() string

	// Load reads and checks the files.
	Load(now time.Time) (*tls.Certificate, error)
}

// Warning is a problem with the certificate, and what to do about it.
type Warning struct{ What, Do string }

// Certificate is the certificate of a server. It follows its files: a valid new pair replaces
// the current one, and open connections stay.
type Certificate struct {
	files   CertificateFiles
	log     *slog.Logger
	brief   func(error) (first string, more int)
	trigger chan struct{} // asks run to read the files now

	handled  string    // fingerprint of the files that were last loaded or rejected
	unusable string    // fingerprint of the files that could not be loaded last
	warned   []Warning // that were logged last

	mu       sync.Mutex
	current  *tls.Certificate
	rejected error
}

// NewCertificate reads the files, which must be valid. brief shortens an error to its first
// problem and the number of further ones, for the log.
func NewCertificate(files CertificateFiles, log *slog.Logger, brief func(error) (first string, more int)) (*Certificate, error) {
	c := &Certificate{files: files, log: log, brief: brief, trigger: make(chan struct{}, 1), handled: files.Fingerprint()}
	var err error
	c.current, err = files.Load(time.Now())
	return c, err
}

// TLSConfig returns Go's defaults with at least TLS 1.2. There is no HSTS header: browsers apply
// it to all ports of a host, and other ports may not use TLS. This port accepts only TLS.
func (c *Certificate) TLSConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, _ := c.Current()
		return pair, nil
	}}
}

// Current returns the certificate in use, and why the files were rejected if they differ from
// it.
func (c *Certificate) Current() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, c.rejected
}

// Reload makes Run read the files now. It does not wait.
func (c *Certificate) Reload() {
	select {
	case c.trigger <- struct{}{}:
	default: // requested already
	}
}

// pollInterval is how often the files are read. Polling works on every file system, and with
// the symbolic links that some tools replace.
const pollInterval = time.Second

// Run follows changes of the files until the context ends. It logs the warnings of check
// whenever they change; a warning with the number of days that are left changes once a day.
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

// poll loads the files if they have changed. Files that can't be loaded are read twice before
// they are rejected: another process may have written only one of the two.
func (c *Certificate) poll(now time.Time) {
	found := c.files.Fingerprint()
	if found == c.handled {
		return
	}
	pair, err := c.files.Load(now)
	switch {
	case err == nil:
		c.handled = found
		c.set(pair, nil)
		c.log.Info("certificate loaded", "until", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case found == c.unusable:
		c.handled = found
		c.reject(err)
	}
	c.unusable = found
}

// reject logs in one line why the certificate stays as it was.
func (c *Certificate) reject(err error) {
	pair, _ := c.Current()
	c.set(pair, err)
	first, more := c.brief(err)
	attrs := []any{"error", first}
	if more > 0 {
		attrs = append(attrs, "more", more)
	}
	c.log.Error("the certificate stays as it was", attrs...)
}

func (c *Certificate) set(pair *tls.Certificate, rejected error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current, c.rejected = pair, rejected
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
