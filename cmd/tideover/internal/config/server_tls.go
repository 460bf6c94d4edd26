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

	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// ServerTLS has the files that the server needs for TLS. The zero value means no TLS.
type ServerTLS struct {
	Cert string // path of the certificate, followed by the intermediate certificates
	Key  string // path of the private key
}

// On reports whether TLS is configured.
func (t ServerTLS) On() bool { return t != ServerTLS{} }

// TLSError is a problem with one of the files of a [ServerTLS].
type TLSError struct {
	Field string // cert or key
	Path  string
	Err   error
}

// Error returns the key, the path of the file and the problem.
func (e *TLSError) Error() string {
	return fmt.Sprintf("server.tls.%s: %s: %v", e.Field, e.Path, e.Err)
}

// Unwrap returns e.Err.
func (e *TLSError) Unwrap() error { return e.Err }

// Load reads and checks the files. A certificate that has expired before now is an error.
// The error joins a [TLSError] for each file that can't be used.
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

// Fingerprint returns a hash of the content of both files, or the text of the error if one
// can't be read. It reads the files because their times may be equal although the content
// differs, as after a symbolic link was changed.
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

// readChain reads a file of certificates. The first certificate, which is the server's
// own, must not have expired before now.
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

// tlsTime is the format of a certificate's expiry in messages.
const tlsTime = "2006-01-02 15:04 UTC"

// readKey reads a private key. It refuses a file that other users can read. If root owns
// the file, its group may read it: that is how root shares a file with one user.
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
	if uid, ok := fileaccess.Owner(info); ok && uid == 0 {
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

// maxPEM is the most bytes in a file, far more than a chain of certificates needs.
const maxPEM = 1 << 20

// readSmall reads a regular file of at most maxPEM bytes. Its errors do not contain the
// path, which the caller adds.
func readSmall(path string) ([]byte, error) {
	// Check the kind before the file is opened: opening a pipe waits for a writer.
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

// readTLS reads the section server.tls, and checks the files that it names.
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

// Exposed reports whether other machines may be able to reach an address.
func Exposed(address string) bool { return !loopback(address) }
