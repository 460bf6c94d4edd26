package config_test

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/certtest"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// tlsFiles writes a valid certificate and key to a folder, and files with problems.
func tlsFiles(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	authority := certtest.New(t)
	later := time.Now().Add(time.Hour)
	good, other := authority.Issue(t, later, "localhost"), authority.Issue(t, later, "localhost")
	good.Write(t, dir)
	old := authority.Issue(t, time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC), "localhost")
	for name, data := range map[string][]byte{
		"other.key": other.Key, "old.pem": old.Cert, "old.key": old.Key, "empty.pem": {}, "both.pem": append(bytes.Clone(good.Key), good.Cert...), "noise.pem": []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
		"locked.key": []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"), "open.key": good.Key, "group.key": good.Key,
		"large.pem": make([]byte, 1<<20+1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"open.key": 0o644, "group.key": 0o660} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTheFilesOfTLS(t *testing.T) {
	t.Parallel()
	dir := tlsFiles(t)
	for _, c := range []struct{ name, tls, want string }{
		{"a pair", "{cert: cert.pem, key: ./key.pem}", ""},
		{"both in one file", "{cert: both.pem, key: both.pem}", ""},
		{"nothing", "", ""},
		{"no files", "{}", "server.tls: want cert and key; leave tls out for no TLS"},
		{"no key", "{cert: cert.pem}", "server.tls.cert: requires key"},
		{"no certificate", "{key: key.pem}", "server.tls.key: requires cert"},
		{"a path that is none", "{cert: '', key: key.pem}", `server.tls.cert: "" is not a path`},
		{"files that are not there", "{cert: none.pem, key: none.key}", "server.tls.cert: \"none.pem\": no such file or directory\nserver.tls.key: \"none.key\": no such file or directory"},
		{"a folder", "{cert: ., key: key.pem}", `server.tls.cert: ".": not a regular file, but a folder`},
		{"a file that is too large", "{cert: large.pem, key: key.pem}", `server.tls.cert: "large.pem": larger than 1048576 bytes`},
		{"an empty file", "{cert: empty.pem, key: key.pem}", `server.tls.cert: "empty.pem": the file has no certificate in PEM format`},
		{"a key for a certificate", "{cert: key.pem, key: key.pem}", `server.tls.cert: "key.pem": the file has no certificate in PEM format`},
		{"noise", "{cert: noise.pem, key: key.pem}", `server.tls.cert: "noise.pem": malformed certificate`},
		{"the key of another", "{cert: cert.pem, key: other.key}", `server.tls.key: "other.key": private key does not match public key`},
		{"a certificate for a key", "{cert: cert.pem, key: cert.pem}", `server.tls.key: "cert.pem": found a certificate rather than a key in the PEM for the private key`},
		{"an encrypted key", "{cert: cert.pem, key: locked.key}", `server.tls.key: "locked.key": the key is encrypted, and the server can't ask for its passphrase; use a key without one`},
		{"one that is over", "{cert: old.pem, key: old.key}", `server.tls.cert: "old.pem": the certificate expired on 2020-02-03 04:05 UTC; get a new one`},
		{"a key for all", "{cert: cert.pem, key: open.key}", `server.tls.key: "open.key": other users can read it (-rw-r--r--): run chmod 600`},
		{"a key that a group can change", "{cert: cert.pem, key: group.key}", `server.tls.key: "group.key": other users can read it (-rw-rw----): run chmod 600`},
		{"two mistakes", "{cert: old.pem, key: open.key}", "server.tls.cert: \"old.pem\": the certificate expired on 2020-02-03 04:05 UTC; get a new one\nserver.tls.key: \"open.key\": other users can read it (-rw-r--r--): run chmod 600"},
		{"a key that is unknown", "{cert: cert.pem, key: key.pem, ca: x}", `server.tls: key "ca" is unknown; want cert, key`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if runtime.GOOS == "windows" && strings.Contains(c.want, "others may") {
				t.Skip("files have no mode")
			}
			src := config.Source{Path: filepath.Join(dir, "tideover.yaml"), Data: []byte("version: 1\nserver:\n  tls: " + c.tls + "\n"), Environ: environ}
			cfg, err := config.Load(src)
			if got := told(err); got != c.want {
				t.Fatalf("Load = %s, want %s", got, c.want)
			}
			if err == nil && cfg.Server.TLS.On() != (c.tls != "") {
				t.Errorf("TLS is %+v", cfg.Server.TLS)
			}
		})
	}
}

// told returns the problems of an error as path: message, without positions.
func told(err error) string {
	problems, _ := err.(strictyaml.FieldErrors)
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.Path+": "+p.Message)
	}
	if len(lines) == 0 && err != nil {
		return err.Error()
	}
	return strings.Join(lines, "\n")
}

// TestAKeyOfRootMayBeReadByItsGroup is about the way in which packages give a service
// access to a key.
func TestAKeyOfRootMayBeReadByItsGroup(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("files have no mode")
	}
	dir := tlsFiles(t)
	files := config.ServerTLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	if err := os.Chmod(files.Key, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Load(time.Now()); (err == nil) != (os.Getuid() == 0) {
		t.Errorf("for the user %d: %v", os.Getuid(), err)
	}
}

func TestLayersOfTLS(t *testing.T) {
	t.Parallel()
	dir := tlsFiles(t)
	cert, key, other := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "both.pem")
	src := config.Source{
		Path: filepath.Join(dir, "tideover.yaml"), Data: []byte("version: 1\nserver:\n  tls:\n    cert: old.pem\n    key: old.key\n"),
		Environ: append([]string{"TIDEOVER_SERVER_TLS_CERT=" + other, "TIDEOVER_SERVER_TLS_KEY=" + key}, environ...),
		Flags:   map[string]string{"tls-cert": cert},
	}
	got := origins(t, src)
	for path, want := range map[string]string{
		"server.tls.cert": cert + " from flag --tls-cert",
		"server.tls.key":  key + " from env TIDEOVER_SERVER_TLS_KEY",
	} {
		if got[path] != want {
			t.Errorf("%s = %s, want %s", path, got[path], want)
		}
	}
	for _, c := range []struct {
		name  string
		env   string
		flags map[string]string
		want  string
	}{
		{"a variable without the other", "TIDEOVER_SERVER_TLS_CERT=" + cert, nil, "env TIDEOVER_SERVER_TLS_CERT: server.tls.cert: requires key"},
		{"a flag without the other", "X=", map[string]string{"tls-key": key}, "flag --tls-key: server.tls.key: requires cert"},
		{"an unknown variable", "TIDEOVER_SERVER_TLS_CA=x", nil, `env TIDEOVER_SERVER_TLS_CA: key "tls-ca" is unknown`},
		{"a variable for both", "TIDEOVER_SERVER_TLS=x", nil, "env TIDEOVER_SERVER_TLS: server.tls: a text, where a map is expected"},
	} {
		_, err := config.Load(config.Source{Environ: []string{"HOME=/home/me", c.env}, Flags: c.flags})
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

// TestAFingerprintTellsRenewals checks that the fingerprint changes after a renewal, also
// if a symbolic link is changed to a file of the same size and time.
func TestAFingerprintTellsRenewals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority := certtest.New(t)
	for _, name := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		authority.Issue(t, time.Now().Add(time.Hour), name).Write(t, filepath.Join(dir, name))
	}
	now := filepath.Join(dir, "now")
	if err := os.Symlink("a", now); err != nil {
		t.Skip(err)
	}
	files := config.ServerTLS{Cert: filepath.Join(now, "cert.pem"), Key: filepath.Join(now, "key.pem")}
	first := files.Fingerprint()
	if again := files.Fingerprint(); again != first {
		t.Errorf("%s is %s now", first, again)
	}
	if err := os.Remove(now); err != nil {
		t.Fatal(err)
	}
	gone := files.Fingerprint()
	if err := os.Symlink("b", now); err != nil {
		t.Fatal(err)
	}
	if next := files.Fingerprint(); next == first || gone == first || gone == next {
		t.Errorf("%q, %q, %q: they must differ", first, gone, next)
	}
	pair, err := files.Load(time.Now())
	if err != nil || pair.Leaf.VerifyHostname("b") != nil {
		t.Errorf("Load = %v, %v", pair, err)
	}
}

// FuzzServerTLS loads random files. Load must not panic, and files that it accepts must be
// a certificate and its key.
func FuzzServerTLS(f *testing.F) {
	dir := f.TempDir()
	good := certtest.New(f).Issue(f, time.Now().Add(time.Hour), "localhost")
	f.Add(good.Cert, good.Key)
	f.Add(good.Key, good.Cert)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte{})
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		files := config.ServerTLS{}
		files.Cert, files.Key = certtest.Pair{Cert: cert, Key: key}.Write(t, dir)
		pair, err := files.Load(time.Now())
		switch {
		case err == nil && (pair.Leaf == nil || pair.PrivateKey == nil):
			t.Errorf("half a pair: %+v", pair)
		case err != nil && err.Error() == "":
			t.Error("an error without words")
		case err == nil:
			if _, err := x509.ParseCertificate(pair.Certificate[0]); err != nil {
				t.Error(err)
			}
		}
	})
}

func ExampleServerTLS_Load() {
	_, err := config.ServerTLS{Cert: "/nowhere/cert.pem", Key: "/nowhere/key.pem"}.Load(time.Now())
	fmt.Println(err)
	// Output:
	// server.tls.cert: /nowhere/cert.pem: no such file or directory
	// server.tls.key: /nowhere/key.pem: no such file or directory
}
