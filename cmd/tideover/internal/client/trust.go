package client

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
)

// authorities reads certificates.
func authorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("there is no certificate in %s, as PEM", path)
	}
	return pool, nil
}

// trustError is why a TLS connection to a server failed, with what to do.
type trustError struct {
	text string
	err  error
}

func (e *trustError) Error() string { return e.text }
func (e *trustError) Unwrap() error { return e.err }

// errWantsTLS is the error of a request without TLS to a server with TLS.
var errWantsTLS = &trustError{text: "the server speaks TLS: write https:// in the place of http://"}

// wantsTLS reports whether a response is that of a Go server with TLS to a request without.
func wantsTLS(resp *http.Response, text []byte) bool {
	return resp.StatusCode == http.StatusBadRequest && resp.TLS == nil && strings.Contains(string(text), "HTTP request to an HTTPS server")
}

// untrusted returns a [*trustError] for an error about TLS, and other errors unchanged.
func untrusted(err error) error {
	text := ""
	if errors.Is(err, http.ErrSchemeMismatch) {
		text = "the server speaks no TLS: write http:// in the place of https://"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		text = "its certificate is from an authority that is not known here: set " + CAVar + " to a file with the authority's certificate, or with the server's if it has made its own"
	}
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		text = strings.TrimPrefix(e.Error(), "x509: ") + ": name it with --server as its certificate does"
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired {
		text = fmt.Sprintf("its certificate counts from %s to %s: renew it, or set the clock", e.Cert.NotBefore.UTC().Format(trustTime), e.Cert.NotAfter.UTC().Format(trustTime))
	}
	if text == "" {
		return err
	}
	return &trustError{text, err}
}

// trustTime is the format of the times of a certificate.
const trustTime = "2006-01-02 15:04 UTC"
