package jetstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestBadConfigurationsAreRefusedByField(t *testing.T) {
	good := Config{URL: "nats://localhost:4222"}
	dir := t.TempDir()
	file := filepath.Join(dir, "x.creds")
	newOperator(t).writeCredentials(file, time.Hour)
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		change func(*Config)
		want   string // start of the error; empty means none
	}{
		{"the least there can be", func(*Config) {}, ""},
		{"several addresses", func(c *Config) { c.URL = "nats://a:1, tls://b:2,c:3" }, ""},
		{"no address", func(c *Config) { c.URL = "" }, "url: empty"},
		{"an address of something else", func(c *Config) { c.URL = "http://user:secret@a" }, "url: number 1 has the scheme"},
		{"an address that is none", func(c *Config) { c.URL = "nats://a:1,nats://user:secret@" }, "url: number 2"},
		{"an address that can't be parsed", func(c *Config) { c.URL = "nats://user:secret@a b:%zz" }, "url: number 1"},
		{"a name with a dot", func(c *Config) { c.Name = "a.b" }, "name: "},
		{"a name in capitals", func(c *Config) { c.Name = "A" }, "name: "},
		{"too many shards", func(c *Config) { c.Shards = MaxShards + 1 }, "shards: "},
		{"less than no shards", func(c *Config) { c.Shards = -1 }, "shards: "},
		{"too many replicas", func(c *Config) { c.Replicas = 7 }, "replicas: "},
		{"a negative limit", func(c *Config) { c.MaxBytes = -1 }, "max bytes: "},
		{"a limit that an entry does not fit in", func(c *Config) { c.MaxBytes = 1 << 10 }, "max bytes: 1024 is less than"},
		{"a lease that never ends", func(c *Config) { c.LeaseTime = 100 * time.Hour }, "lease time: 100h0m0s is more than 5m0s"},
		{"a port that is none", func(c *Config) { c.URL = "nats://a:99999" }, "url: number 1 has the port 99999"},
		{"the port 0", func(c *Config) { c.URL = "nats://a:0" }, "url: number 1 has the port 0"},
		{"two kinds of addresses", func(c *Config) { c.URL = "nats://a,wss://b" }, "url: ws:// and wss:// can't be mixed"},
		{"a short lease", func(c *Config) { c.LeaseTime = time.Millisecond }, "lease time: "},
		{"a password without a user", func(c *Config) { c.Password = "secret" }, "password: "},
		{"two ways to say who we are", func(c *Config) { c.User, c.Password, c.Token = "user", "secret", "secret" }, "credentials, nkey seed"},
		{"credentials that are not there", func(c *Config) { c.Credentials = file + "x" }, "credentials: "},
		{"credentials that are there", func(c *Config) { c.Credentials = file }, ""},
		{"a seed that is not there", func(c *Config) { c.NKeySeed = file + "x" }, "nkey seed: "},
		{"two system users", func(c *Config) { c.SystemUser, c.SystemCredentials = "x", file }, "system user, system credentials"},
		{"a user without password", func(c *Config) { c.User = "user" }, "user: there is no password"},
		{"a system user without password", func(c *Config) { c.SystemUser = "user" }, "system user: there is no system password"},
		{"a user here and in the address", func(c *Config) { c.URL, c.User, c.Password = "nats://u:secret@a", "u", "secret" }, "url: it has credentials"},
		{"credentials that are a folder", func(c *Config) { c.Credentials = dir }, "credentials: " + dir + " is not a file"},
		{"credentials with nothing in them", func(c *Config) { c.Credentials = empty }, "credentials: there is no"},
		{"a seed that is none", func(c *Config) { c.NKeySeed = empty }, "nkey seed: there is no seed"},
		{"a second place that is there", func(c *Config) { c.SecondPlace = dir }, ""},
		{"a second place that is not there", func(c *Config) { c.SecondPlace = dir + "x" }, "second place: " + dir + "x is not there; make the folder, or mount"},
		{"a second place that is a file", func(c *Config) { c.SecondPlace = file }, "second place: " + file + " is not a folder"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := good
			test.change(&c)
			err := c.Validate()
			if test.want == "" {
				if err != nil {
					t.Fatalf("Validate() = %v; want none", err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Fatalf("Validate() = %v; want %q", err, test.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("Validate() = %v; it has a secret in it", err)
			}
			if _, err := Open(t.Context(), c); err == nil {
				t.Error("Open succeeds")
			}
		})
	}
}

func TestAllThatIsWrongIsNamed(t *testing.T) {
	err := Config{Name: "A", Shards: -1}.Validate()
	for _, want := range []string{"url: ", "name: ", "shards: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Validate() = %v; want %q in it", err, want)
		}
	}
}

func TestSecretsAreRedacted(t *testing.T) {
	c := Config{
		URL:      "nats://user:pass%40word@a:1,nats://tok3n@b",
		Password: "hunter2", Token: "t0k", SystemPassword: "sys-pass",
		Redact: func(s string) string { return strings.ReplaceAll(s, "mine", "***") },
	}
	got := c.redact("pass@word pass%40word tok3n hunter2 t0k sys-pass mine user harmless")
	for _, secret := range []string{"pass@word", "pass%40word", "tok3n", "hunter2", "t0k", "sys-pass", "mine"} {
		if strings.Contains(got, secret) {
			t.Errorf("redact() = %q; it has %q in it", got, secret)
		}
	}
	if !strings.Contains(got, "harmless") {
		t.Errorf("redact() = %q; want the rest kept", got)
	}
}
