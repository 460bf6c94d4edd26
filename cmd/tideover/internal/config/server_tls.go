package config

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// ServerTLS has the files with which the server speaks TLS. The zero value means that
// it does not.
type ServerTLS struct {
	Cert string // path of the certificate, with those between it and its authority
	Key  string // path of its key
}

// On reports whether TLS is spoken.
func (t ServerTLS) On() bool { return t != ServerTLS{} }

// TLSError is a problem with one of the files.
type TLSError struct {
	Field string // cert or key
	Path  string
	Err   error
}

// Error names the field and the file.
func (e *TLSError) Error() string {
	return fmt.Sprintf("server.tls.%s: %s: %v", e.Field, e.Path, e.Err)
}

// Unwrap returns the problem.
func (e *TLSError) Unwrap() error { return e.Err }

// Load reads the files as they are now. Its error has a [TLSError] for each file that
// can't be used.
func (t ServerTLS) Load(now time.Time) (*tls.Certificate, error) {
	chain, cerr := readChain(t.Cert, now)
	key, kerr := readKey(t.Key)
	if err := errors.Join(t.wrong("cert", t.Cert, cerr), t.wrong("key", t.Key, kerr)); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, t.wrong("key", t.Key, errors.New(strings.TrimPrefix(err.Error(), "tls: ")))
	}
	return &pair, nil
}

// Fingerprint identifies the content of the files. It reads them: their times may be
// the same although the content differs, as after a change of a link.
func (t ServerTLS) Fingerprint() string {
	sum := sha256.New()
	for _, path := range []string{t.Cert, t.Key} {
		data, err := readSmall(path)
		if err != nil {
			return err.Error()
		}
		fmt.Fprintf(sum, "%d ", len(data))
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func (t ServerTLS) wrong(field, path string, err error) error {
	if err == nil {
		return nil
	}
	return &TLSError{field, path, err}
}

// readChain reads certificates, of which the first is the server's own.
func readChain(path string, now time.Time) ([]byte, error) {
	chain, err := readSmall(path)
	if err != nil {
		return nil, err
	}
	for rest := chain; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, errors.New("the file has no certificate in PEM format")
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		leaf, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil:
			return nil, errors.New(strings.TrimPrefix(err.Error(), "x509: "))
		case now.After(leaf.NotAfter):
			return nil, fmt.Errorf("the certificate expired on %s; get a new one", leaf.NotAfter.UTC().Format(tlsTime))
		}
		return chain, nil
	}
}

// tlsTime is the form of the end of a certificate in messages.
const tlsTime = "2006-01-02 15:04 UTC"

// readKey reads a key that no other user may read. The group may if root owns the file,
// who has no other way to give it to one user alone.
func readKey(path string) ([]byte, error) {
	key, err := readSmall(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	shared := fs.FileMode(0o077)
	if ofRoot(info) {
		shared = 0o037
	}
	switch mode := info.Mode().Perm(); {
	case runtime.GOOS != "windows" && mode&shared != 0:
		return nil, fmt.Errorf("other users can read it (%v): run chmod 600", mode)
	case bytes.Contains(key, []byte("ENCRYPTED")):
		return nil, errors.New("the key is encrypted, and the server can't ask for its passphrase; use a key without one")
	}
	return key, nil
}

// maxPEM is more than a chain of certificates has.
const maxPEM = 1 << 20

// readSmall reads a file of a sane size. Its errors do not name the file.
func readSmall(path string) ([]byte, error) {
	// Before it is opened: opening a pipe waits for a writer.
	info, err := os.Stat(path)
	var data []byte
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("not a regular file, but %s", fileKind(info.Mode()))
	case info.Size() > maxPEM:
		return nil, fmt.Errorf("larger than %d bytes", maxPEM)
	default:
		data, err = os.ReadFile(path)
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return data, err
}

// readTLS reads the section, and the files that it names.
func (r serverReader) readTLS(at place, t *ServerTLS) {
	if at.Node.Kind == strictyaml.KindNull {
		return
	}
	before := at.Document().Problems()
	found, ok := strictyaml.Object(at, r.serverTLSKeys(t))
	if ok && len(found) == 0 {
		at.Bad("want cert and key; leave tls out for no TLS")
	}
	checkPair(found, "cert", "key")
	if at.Document().Problems() > before {
		return
	}
	_, err := t.Load(time.Now())
	for _, err := range strictyaml.JoinedErrors(err) {
		if e, ok := errors.AsType[*TLSError](err); ok {
			here := found[e.Field]
			here.Bad("%q: %v", here.Node.Text, e.Err)
		}
	}
}

func (r serverReader) serverTLSKeys(t *ServerTLS) []key {
	return []key{
		strictyaml.Field(&t.Cert, "cert", "", strictyaml.ScalarSchema, r.filePath,
			"Path of the server's certificate, followed by the intermediate certificates, as PEM."),
		strictyaml.Field(&t.Key, "key", "", strictyaml.ScalarSchema, r.filePath,
			"Path of the certificate's private key, as PEM. Other users must not be able to read it."),
	}
}

func (r serverReader) serverTLSSchema() *jsonschema.Schema {
	s := strictyaml.Describe(r.serverTLSKeys(new(ServerTLS)))
	s.MinProperties = new(1)
	return strictyaml.OrNull(s)
}

// Exposed reports whether others than this machine can reach an address.
func Exposed(address string) bool { return !loopback(address) }
