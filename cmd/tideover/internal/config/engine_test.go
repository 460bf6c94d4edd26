package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/internal/secret"
)

// clustered loads a file with the section engine, and returns the settings with which the
// log is opened.
func clustered(t *testing.T, section string, env ...string) (*config.Config, jetstream.Config) {
	t.Helper()
	cfg, err := config.Load(config.Source{
		Path: "testdata/x.yaml", Data: []byte("version: 1\n" + section), Environ: append([]string{"HOME=/home/me"}, env...), Redactor: new(secret.Redactor),
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := cfg.Engine.Log(cfg.Secrets())
	if err != nil {
		t.Fatal(err)
	}
	return cfg, out
}

func TestAClusterIsReadAsItIsMeant(t *testing.T) {
	cfg, err := config.Load(config.Source{Path: "testdata/cluster.yaml", Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	e := cfg.Engine
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(e.Clustered(), e.NATS, e.Name, e.Shards, e.Replicas, e.MaxBytes, e.LeaseTime, e.User, e.Password, e.Member, e.SecondPlace == dir, e.TLS.CA == filepath.Join(dir, "client.pem"), e.SystemUser)
	if want := "true [nats://a.example:4222 tls://b.example] shop 16 3 1073741824 15s me ${env:HOOK} box-1 true true system\n"; got != want {
		t.Errorf("the section is %s, want %s", got, want)
	}
	_, c := clustered(t, "engine: {nats: ['nats://a.example:4222', 'tls://b.example'], user: me, password: '${env:HOOK}', system-user: s, system-password: '${env:HOOK}'}", environ...)
	if c.URL != "nats://a.example:4222,tls://b.example" || c.Password != "hook-PLANTED-2" || c.SystemPassword != c.Password || c.Name != "tideover" || c.TLS != nil {
		t.Errorf("the log is opened with %+v", c)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestWithoutNATSThereIsNoCluster(t *testing.T) {
	cfg := full(t)
	if cfg.Engine.Clustered() {
		t.Error("there is a cluster")
	}
	for _, v := range cfg.Values() {
		if strings.HasPrefix(v.Path, "engine.") {
			t.Errorf("there is a value %+v", v)
		}
	}
}

// TestPasswordsOfAnyCharacters uses passwords with characters that end a part of a URL or
// separate addresses.
func TestPasswordsOfAnyCharacters(t *testing.T) {
	for _, password := range []string{"plain", "a,b", "a/b?c#d", "a@b:c", "100%", "a b+c", "${x}", "ü"} {
		_, c := clustered(t, "engine: {nats: 'nats://me:${env:PW}@a.example:4222'}", "PW="+password)
		u, err := url.Parse(c.URL)
		if err != nil {
			t.Errorf("%q: %v", password, err)
			continue
		}
		if got, _ := u.User.Password(); got != password || u.User.Username() != "me" || u.Host != "a.example:4222" {
			t.Errorf("%q comes out as %q", password, c.URL)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%q: %v", password, err)
		}
	}
}

func TestSecretsOfAddressesAreHidden(t *testing.T) {
	for _, c := range []struct {
		name, section string
		env           []string
	}{
		{"a password", "engine: {nats: 'nats://me:${env:PW}@a.example'}", []string{"PW=PLANTED-pw"}},
		{"a token", "engine: {nats: 'nats://${env:PW}@a.example'}", []string{"PW=PLANTED-pw"}},
		{"a whole address", "engine: {nats: '${env:U}'}", []string{"U=nats://me:PLANTED-pw@a.example,nats://me:PLANTED-pw@b.example"}},
		{"a variable of ours", "", []string{"TIDEOVER_ENGINE_NATS=nats://me:PLANTED-pw@a.example,nats://b.example"}},
		{"a token in a variable", "", []string{"TIDEOVER_ENGINE_NATS=nats://PLANTED-pw@a.example"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, out := clustered(t, c.section, c.env...)
			if !strings.Contains(out.URL, "PLANTED-pw@a.example") {
				t.Errorf("the address is %q", out.URL)
			}
			for _, v := range cfg.Values() {
				if strings.Contains(v.Text, "PLANTED") {
					t.Errorf("%s is shown as %s", v.Path, v.Text)
				}
			}
			if got := cfg.Secrets().Redactor.String("dial PLANTED-pw at " + out.URL); strings.Contains(got, "PLANTED") {
				t.Errorf("the redactor leaves %q", got)
			}
		})
	}
}

func TestVariablesAndFlagsOfACluster(t *testing.T) {
	dir := t.TempDir()
	ca, _ := pair(t, dir)
	src := config.Source{
		Path: "/etc/tideover.yaml", Data: []byte("version: 1\nengine: {nats: a.example, shards: 4, tls: {ca: /none}}\n"),
		Environ: []string{"HOME=/home/me", "TIDEOVER_ENGINE_SHARDS=8", "TIDEOVER_ENGINE_TLS_CA=" + ca, "TIDEOVER_ENGINE_TOKEN=PLANTED", "TIDEOVER_ENGINE_NAME="},
		Flags:   map[string]string{"engine.nats": "b.example,c.example", "data": "/d"},
	}
	cfg, err := config.Load(src)
	if err != nil {
		t.Fatal(err)
	}
	got := origins(t, src)
	for path, want := range map[string]string{
		"engine.nats":   "b.example,c.example from flag --nats",
		"engine.name":   "tideover from default",
		"engine.shards": "8 from env TIDEOVER_ENGINE_SHARDS",
		"engine.tls.ca": ca + " from env TIDEOVER_ENGINE_TLS_CA",
		"engine.token":  "${env:TIDEOVER_ENGINE_TOKEN} from env TIDEOVER_ENGINE_TOKEN",
	} {
		if got[path] != want {
			t.Errorf("%s is %s, want %s", path, got[path], want)
		}
	}
	if cfg.Engine.Shards != 8 || cfg.Engine.TLS.CA != ca || len(cfg.Engine.NATS) != 2 {
		t.Errorf("the section is %+v", cfg.Engine)
	}
	for variable, want := range map[string]string{
		"TIDEOVER_ENGINE_SHARD=1":           `env TIDEOVER_ENGINE_SHARD: key "shard" is unknown; did you mean "shards"?`,
		"TIDEOVER_ENGINE_TLS=x":             "env TIDEOVER_ENGINE_TLS: engine.tls: a text, where a map is expected",
		"TIDEOVER_ENGINE_TLS_CACERT=x":      `env TIDEOVER_ENGINE_TLS_CACERT: key "tls-cacert" is unknown; did you mean "tls-cert"?`,
		"TIDEOVER_ENGINE_NATS=http://x@b.c": `env TIDEOVER_ENGINE_NATS: engine.nats: "${env:TIDEOVER_ENGINE_NATS}" has the scheme "http"; want nats, tls, ws or wss`,
	} {
		_, err := config.Load(config.Source{Data: []byte("version: 1\nengine: {nats: a.example}\n"), Environ: []string{"HOME=/home/me", variable}})
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", variable, err, want)
		}
	}
}

// pair writes a new certificate and its key to the folder, and returns their paths.
func pair(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestFilesForTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := pair(t, dir)
	_, c := clustered(t, fmt.Sprintf("engine: {nats: a.example, tls: {ca: %s, cert: %s, key: %s}}", cert, cert, key))
	if c.TLS == nil || c.TLS.RootCAs == nil {
		t.Fatalf("TLS is %+v", c.TLS)
	}
	first, err := c.TLS.GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil {
		t.Fatal(err)
	}
	pair(t, dir) // renewed
	second, err := c.TLS.GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil || string(first.Certificate[0]) == string(second.Certificate[0]) {
		t.Errorf("the certificate was not read again: %v", err)
	}
	for section, want := range map[string]string{
		"{ca: " + key + "}":                      "engine.tls.ca: there is no certificate in " + key,
		"{cert: " + key + ", key: " + cert + "}": "engine.tls.cert: tls: failed to find",
	} {
		_, err := config.Load(config.Source{Data: []byte("version: 1\nengine: {nats: a.example, tls: " + section + "}\n"), Environ: []string{"HOME=/home/me"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", section, err, want)
		}
	}
}
