package jetstream

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tideover/tideover/internal/boottime"
)

// The defaults of a [Config].
const (
	DefaultName      = "tideover"
	DefaultShards    = 32
	DefaultLeaseTime = 12 * time.Second
)

// The bounds of a [Config].
const (
	// MaxShards is the largest number of shards: the state of all must fit into one
	// answer of a server.
	MaxShards = 512

	// MaxLeaseTime is the longest lease time. The runs of a machine that is cut off do
	// not continue for as long as the lease time.
	MaxLeaseTime = 5 * time.Minute

	// MinBytes is the smallest limit of a stream: the largest entry must fit.
	MinBytes = 1 << 20
)

// Config describes a log. A setting that is marked with "at creation" is stored in the
// cluster; a member that joins later uses the stored value.
type Config struct {
	URL  string // addresses of the servers, separated by commas: nats://…, tls://…
	Name string // name of this cluster within NATS, with which the names of its streams begin: a-z, 0-9, dash; empty means DefaultName

	Shards    int           // number of shards, at creation; 0 means DefaultShards, or the number that the cluster has
	Replicas  int           // replicas of each stream, at creation; 0 means 3 if the servers are a cluster, else 1
	MaxBytes  int64         // largest size of each shard's stream, at creation; 0 means no limit
	LeaseTime time.Duration // a member without a heartbeat for this time counts as dead, at creation; 0 means DefaultLeaseTime

	// At most one kind of credentials.
	Credentials    string // path of a .creds file; it is read whenever the connection is made, so it may be renewed meanwhile
	NKeySeed       string // path of a file with the seed of an nkey
	User, Password string
	Token          string
	TLS            *tls.Config // authorities and client certificate; nil means that the URL decides

	// Credentials of NATS's system account, for [Log.Check] only.
	SystemCredentials          string
	SystemUser, SystemPassword string

	MemberName  string // name of this process; empty means host and process id
	Cache       string // folder for local copies of blobs; empty means a temporary one
	SecondPlace string // folder for a second copy of every blob, on a disk outside of NATS that all members see; empty means none

	Prefix string // put before the names of settings in errors and findings, such as "engine."; they are lease-time for LeaseTime and so on
	Before string // id of the cluster that this process was in last, from [Log.ClusterID]; Open logs an error if it finds another cluster. Empty means none

	// AcceptLoss leases a shard whose stream ends before what was acknowledged. Without it, Lease fails
	// with a [journal.LossError]. The loss is recorded in the record of the shard.
	AcceptLoss bool

	beat        time.Duration                  // between two heartbeats, for tests; 0 means a twelfth of LeaseTime
	sinceBoot   func() (time.Duration, string) // returns the time since boot and the id of the boot, for tests; nil means those of the machine
	requestTime time.Duration                  // how long a server may take to answer, for tests; 0 means the constant requestTime

	Logger *slog.Logger        // nil means none
	Redact func(string) string // applied to texts of servers and networks, before they are in an error or a log; nil means that only the secrets of this Config are removed
}

// withDefaults fills in the defaults that do not depend on the servers.
func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, DefaultName)
	if c.MemberName == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		c.MemberName = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.sinceBoot == nil {
		c.sinceBoot = boottime.Elapsed
	}
	return c
}

// redact removes secrets from a text.
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

// passwords returns the passwords and tokens in the URLs.
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

// identity returns the credentials of the configuration.
func (c Config) identity() (nats.Option, error) {
	switch {
	case c.Credentials != "":
		return nats.UserCredentials(c.Credentials), nil
	case c.NKeySeed != "":
		option, err := nats.NkeyOptionFromSeed(c.NKeySeed)
		if err != nil {
			return nil, fmt.Errorf("nkey seed: %s: %w", c.NKeySeed, err)
		}
		return option, nil
	case c.User != "":
		return nats.UserInfo(c.User, c.Password), nil
	case c.Token != "":
		return nats.Token(c.Token), nil
	default:
		return func(*nats.Options) error { return nil }, nil
	}
}

// systemIdentity returns the credentials of the system account, nil if there are none.
func (c Config) systemIdentity() nats.Option {
	switch {
	case c.SystemCredentials != "":
		return nats.UserCredentials(c.SystemCredentials)
	case c.SystemUser != "":
		return nats.UserInfo(c.SystemUser, c.SystemPassword)
	default:
		return nil
	}
}
