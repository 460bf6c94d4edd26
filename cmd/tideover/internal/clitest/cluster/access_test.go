//go:build unix

package cluster_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// The NATS user has exactly the permissions that docs/cluster-howto.md lists. They are sufficient.
func TestAUserThatMayDoNoMore(t *testing.T) {
	t.Parallel()
	_, text, _ := strings.Cut(clitest.ReadPage(t, "cluster-howto.md"), "publish and subscribe to ")
	text, _, _ = strings.Cut(text, ", where NAME")
	var subjects []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		subjects = append(subjects, fmt.Sprintf("%q", strings.ReplaceAll(m[1], "NAME", "shop")))
	}
	if len(subjects) < 4 {
		t.Fatalf("docs/cluster-howto.md names %v", subjects)
	}
	may := strings.Join(subjects, ", ")
	nodes := natstest.Start(t, 1, natstest.WithAccess(fmt.Sprintf(`
accounts {
	TEST { jetstream: enabled, users: [{user: "me", password: "pw", permissions: {publish: [%s], subscribe: [%s]}}] }
	$SYS { users: [{user: "system", password: "pw"}] }
}
`, may, may)))
	f := clitest.NewCluster(t, clitest.Shared+clitest.EngineSection(nodes, "shop", "user: me", "password: '${env:PW}'"))
	a, b := f.Serve("a", "PW=pw"), f.Serve("b", "PW=pw")
	a.WaitForShards(2)
	a.WaitForSuccess(a.StartRuns("where", 6))
	clitest.WantCode(t, a.RunCommand("backup", filepath.Join(f.Dir, "copy")), 0)
	for _, s := range []*clitest.Server{a, b} {
		s.Signal(syscall.SIGTERM)
		clitest.WantCode(t, s.End(), 0)
		if strings.Contains(strings.ToLower(s.Log.String()), "permissions violation") {
			t.Errorf("something was not allowed: %s", s.Log)
		}
	}
}

// authority is a certificate authority that writes its certificates to files in a folder.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue creates a certificate, and writes it and its key to files with this name.
func (a *authority) issue(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	clitest.WriteFile(a.t, a.path(name+".pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	clitest.WriteFile(a.t, a.path(name+".key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func TestAClusterWithTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	ca.issue("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	ca.issue("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	nodes := natstest.Start(t, 1, natstest.WithConfig(fmt.Sprintf("\ntls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }\n",
		ca.path("server.pem"), ca.path("server.key"), ca.path("ca.pem"))))
	f := clitest.NewCluster(t, clitest.Shared+clitest.EngineSection(nodes, "shop", fmt.Sprintf("tls: {ca: %s, cert: %s, key: %s}", ca.path("ca.pem"), ca.path("client.pem"), ca.path("client.key"))))
	a := f.Serve("a")
	clitest.WantCode(t, a.RunCommand("run", "where", "--wait"), 0)

	other := newAuthority(t)
	f.Text = clitest.Shared + clitest.EngineSection(nodes, "shop", "tls: {ca: "+other.path("ca.pem")+"}")
	b := f.Begin("b")
	testwait.Until(t, "who is not trusted is named", func() bool { return strings.Contains(b.Log.String(), "certificate signed by unknown authority") })
}
