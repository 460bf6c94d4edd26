package jetstream

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/jetstream/natstest"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue writes a certificate and its key, and returns them.
func (a *authority) issue(name string, template *x509.Certificate) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.Subject = pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			a.t.Fatal(err)
		}
		a.key = key
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "EC PRIVATE KEY", raw)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("server", &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	client := a.issue("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	nodes := natstest.Start(t, 1, natstest.WithConfig(fmt.Sprintf(
		"tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }\n", a.path("server.pem"), a.path("server.key"), a.path("ca.pem"))))
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	good := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{client}, MinVersion: tls.VersionTLS12}
	log := openTest(t, Config{URL: nodes.URL(), TLS: good})
	appendEntries(t, mustLease(t, log, 0), 1, 3)
	for name, config := range map[string]*tls.Config{
		"without an authority":   {Certificates: good.Certificates, MinVersion: tls.VersionTLS12},
		"without a certificate":  {RootCAs: pool, MinVersion: tls.VersionTLS12},
		"without any of it":      nil,
		"with another authority": {RootCAs: x509.NewCertPool(), Certificates: good.Certificates, MinVersion: tls.VersionTLS12},
	} {
		// real clock: the server never lets it in
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		_, err := Open(ctx, Config{URL: nodes.URL(), TLS: config})
		cancel()
		wantErr(t, "Open "+name, err, nil, "connect to NATS")
	}
}
