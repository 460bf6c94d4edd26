package client

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
)

// authorities reads the certificates of authorities from a PEM file.
func authorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("there is no certificate in %s; it must be a PEM file", path)
	}
	return pool, nil
}

// trustError is the error of a TLS connection to a server. Its text says what to do.
type trustError struct {
	text string
	err  error
}

func (e *trustError) Error() string { return e.text }
func (e *trustError) Unwrap() error { return e.err }

// errWantsTLS is the error of a plain HTTP request to a server that expects TLS.
var errWantsTLS = &trustError{text: "the server speaks TLS: write https:// in place of http://"}

// wantsTLS reports whether the response is that of a Go server that expects TLS and got a plain
// HTTP request.
func wantsTLS(resp *http.Response, text []byte) bool {
	return resp.StatusCode == http.StatusBadRequest && resp.TLS == nil && strings.Contains(string(text), "HTTP request to an HTTPS server")
}

// untrusted returns a [*trustError] for an error about TLS, and other errors unchanged.
func untrusted(err error) error {
	text := ""
	if errors.Is(err, http.ErrSchemeMismatch) {
		text = "the server does not speak TLS: write http:// in place of https://"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		text = "its certificate is from an authority that is not known here: set " + CAVar + " to a file with the authority's certificate, or with the server's own certificate if it is self-signed"
	}
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		text = strings.TrimPrefix(e.Error(), "x509: ") + ": use a name of its certificate in --server"
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired {
		text = fmt.Sprintf("its certificate is valid from %s to %s: renew it, or set the clock of this machine", e.Cert.NotBefore.UTC().Format(trustTime), e.Cert.NotAfter.UTC().Format(trustTime))
	}
	if text == "" {
		return err
	}
	return &trustError{text, err}
}

// trustTime is the format of the times of a certificate.
const trustTime = "2006-01-02 15:04 UTC"
