package jetstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"
)

// The defaults of a [Config].
const (
	DefaultName      = "tideover"
	DefaultShards    = 32
	DefaultLeaseTime = 12 * time.Second
)

// MaxShards is the largest number of shards: the state of all must fit into one
// answer of a server.
const MaxShards = 512

// Config describes a log. What is marked with "at creation" is kept by the
// cluster; who comes later takes it from there.
type Config struct {
	URL  string // of the servers: nats://…, tls://…, several with commas
	Name string // of this cluster within NATS, the start of the names of its streams: a-z, 0-9, dash; empty means DefaultName

	Shards    int           // at creation; 0 means DefaultShards, or what the cluster has
	Replicas  int           // of everything, at creation; 0 means 3 if the servers are a cluster, else 1
	MaxBytes  int64         // of each shard's stream, at creation; 0 means no limit
	LeaseTime time.Duration // silence after which a member is taken for dead, at creation; 0 means DefaultLeaseTime

	// At most one way to say who we are.
	Credentials    string // path of a .creds file; it is read whenever the connection is made, so it may be renewed meanwhile
	NKeySeed       string // path of a file with the seed of an nkey
	User, Password string
	Token          string
	TLS            *tls.Config // authorities and client certificate; nil means what the URL says

	// Credentials of NATS's system account, for [Log.Check] only.
	SystemCredentials          string
	SystemUser, SystemPassword string

	MemberName  string // what this process is called; empty means host and process id
	Cache       string // folder for local copies of blobs; empty means a temporary one
	SecondPlace string // folder for a second copy of every blob, on a disk outside of NATS that all members see; empty means none

	Logger *slog.Logger        // nil means none
	Redact func(string) string // applied to what servers and networks say, before it is in an error or a log; nil means nothing more than our own secrets
}

var validName = regexp.MustCompile(`^[a-z0-9-]{1,100}$`)

// Validate returns all that is wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	errs = append(errs, checkURL(c.URL))
	add(c.Name != "" && !validName.MatchString(c.Name), "name: %q is not made of a-z, 0-9 and dashes", c.Name)
	add(c.Shards < 0 || c.Shards > MaxShards, "shards: %d is not between 1 and %d", c.Shards, MaxShards)
	add(c.Replicas < 0 || c.Replicas > 5, "replicas: %d is not between 1 and 5", c.Replicas)
	add(c.MaxBytes < 0, "max bytes: %d is negative", c.MaxBytes)
	add(c.LeaseTime < 0 || c.LeaseTime > 0 && c.LeaseTime < time.Second, "lease time: %v is less than a second", c.LeaseTime)
	add(c.Password != "" && c.User == "", "password: there is no user")
	add(c.SystemPassword != "" && c.SystemUser == "", "system password: there is no system user")
	ways := 0
	for _, set := range []string{c.Credentials, c.NKeySeed, c.User, c.Token} {
		if set != "" {
			ways++
		}
	}
	add(ways > 1, "credentials, nkey seed, user, token: more than one is set")
	add(c.SystemUser != "" && c.SystemCredentials != "", "system user, system credentials: both are set")
	errs = append(errs, checkFile("credentials", c.Credentials), checkFile("nkey seed", c.NKeySeed),
		checkFile("system credentials", c.SystemCredentials))
	return errors.Join(errs...)
}

// checkURL never quotes the text: there may be a password in it.
func checkURL(text string) error {
	if text == "" {
		return errors.New("url: empty")
	}
	for i, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		if !strings.Contains(part, "://") {
			part = "nats://" + part
		}
		u, err := url.Parse(part)
		switch {
		case err != nil || u.Host == "":
			return fmt.Errorf("url: number %d is not an address like nats://host:4222", i+1)
		case u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss":
			return fmt.Errorf("url: number %d has the scheme %q; want nats, tls, ws or wss", i+1, u.Scheme)
		}
	}
	return nil
}

func checkFile(field, path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return f.Close()
}

// withDefaults fills in what does not depend on the servers.
func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.MemberName == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		c.MemberName = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// redact takes out of a text what must not be seen.
func (c Config) redact(text string) string {
	for _, secret := range append(passwords(c.URL), c.Password, c.Token, c.SystemPassword) {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	if c.Redact != nil {
		text = c.Redact(text)
	}
	return text
}

// passwords returns what follows or stands for a user's name in the URLs.
func passwords(text string) (secrets []string) {
	for part := range strings.SplitSeq(text, ",") {
		u, err := url.Parse(strings.TrimSpace(part))
		if err != nil || u.User == nil {
			continue
		}
		secret, ok := u.User.Password()
		if !ok {
			secret = u.User.Username() // a token
		}
		secrets = append(secrets, secret, url.QueryEscape(secret), u.User.String())
	}
	return secrets
}
