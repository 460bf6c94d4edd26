package jetstream

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/internal/boottime"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/validate"
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

	// ReadOnly makes Open read a cluster without joining or creating it: Open fails with [ErrNoCluster] if
	// there is none. The log can't lease.
	ReadOnly bool

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

var validName = lazyregexp.New(`^[a-z0-9-]{1,100}$`)

// Validate returns all errors of the configuration that can be found without a
// connection.
func (c Config) Validate() error {
	return errors.Join(
		checkURL(c.URL), c.checkValues(), c.checkLogins(),
		checkCredentials("credentials", c.Credentials), checkSeed(c.NKeySeed),
		checkCredentials("system credentials", c.SystemCredentials), checkFolder(c.SecondPlace),
	)
}

func (c Config) checkValues() error {
	var found validate.Problems
	found.Check(c.Name == "" || validName.MatchString(c.Name), "name: %q is not made of a-z, 0-9 and dashes", c.Name)
	found.Check(c.Shards >= 0 && c.Shards <= MaxShards, "shards: %d is not between 1 and %d", c.Shards, MaxShards)
	found.Check(c.Replicas >= 0 && c.Replicas <= 5, "replicas: %d is not between 1 and 5", c.Replicas)
	found.Check(c.MaxBytes >= 0, "max bytes: %d is negative", c.MaxBytes)
	found.Check(c.MaxBytes <= 0 || c.MaxBytes >= MinBytes, "max bytes: %d is less than %d, which the largest entry needs", c.MaxBytes, MinBytes)
	found.Check(c.LeaseTime == 0 || c.LeaseTime >= time.Second, "lease time: %v is less than a second", c.LeaseTime)
	found.Check(c.LeaseTime <= MaxLeaseTime, "lease time: %v is more than %v: the runs of a dead process do not continue for as long as the lease time",
		c.LeaseTime, MaxLeaseTime)
	return errors.Join(found...)
}

// checkLogins rejects several kinds of credentials at once, and incomplete ones.
func (c Config) checkLogins() error {
	var found validate.Problems
	ways := 0
	for _, set := range []string{c.Credentials, c.NKeySeed, c.User, c.Token} {
		if set != "" {
			ways++
		}
	}
	found.Check(c.Password == "" || c.User != "", "password: there is no user")
	found.Check(c.SystemPassword == "" || c.SystemUser != "", "system password: there is no system user")
	found.Check(ways <= 1, "credentials, nkey seed, user, token: more than one is set; set only one")
	found.Check(ways == 0 || len(passwords(c.URL)) == 0, "url: it has credentials, and another setting has credentials too; remove one of them")
	found.Check(c.SystemUser == "" || c.SystemCredentials == "", "system user, system credentials: both are set")
	found.Check(c.User == "" || c.Password != "", "user: there is no password")
	found.Check(c.SystemUser == "" || c.SystemPassword != "", "system user: there is no system password")
	return errors.Join(found...)
}

// checkURL checks the URLs of the servers. Its errors do not quote the text, which may
// contain a password.
func checkURL(text string) error {
	if text == "" {
		return errors.New("url: empty")
	}
	var web, plain int
	for i, part := range strings.Split(text, ",") {
		u, err := parseURL(part)
		switch {
		case err != nil || u.Hostname() == "":
			return fmt.Errorf("url: number %d is not an address like nats://host:4222", i+1)
		case u.Scheme == "ws" || u.Scheme == "wss":
			web++
		case u.Scheme == "nats" || u.Scheme == "tls":
			plain++
		default:
			return fmt.Errorf("url: number %d has the scheme %q; want nats, tls, ws or wss", i+1, u.Scheme)
		}
		if n, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || n == 0) {
			return fmt.Errorf("url: number %d has the port %s; want 1 to 65535", i+1, u.Port())
		}
	}
	if web > 0 && plain > 0 {
		return errors.New("url: ws:// and wss:// can't be mixed with nats:// and tls://")
	}
	return nil
}

func parseURL(part string) (*url.URL, error) {
	part = strings.TrimSpace(part)
	if !strings.Contains(part, "://") {
		part = "nats://" + part
	}
	return url.Parse(part)
}

// checkCredentials checks the contents of a .creds file now, although it is read again
// at each connection.
func checkCredentials(field, path string) error {
	text, err := readFile(field, path)
	if err != nil || path == "" {
		return err
	}
	if _, err := nkeys.ParseDecoratedJWT(text); err != nil {
		return fmt.Errorf("%s: there is no JWT of a user in %s", field, path)
	}
	if _, err := nkeys.ParseDecoratedUserNKey(text); err != nil {
		return fmt.Errorf("%s: there is no seed of a user in %s", field, path)
	}
	return nil
}

func checkSeed(path string) error {
	const field = "nkey seed"
	if _, err := readFile(field, path); err != nil || path == "" {
		return err
	}
	if _, err := nats.NkeyOptionFromSeed(path); err != nil {
		return fmt.Errorf("%s: there is no seed of an nkey in %s", field, path)
	}
	return nil
}

// maxFile is larger than any file with credentials, in bytes.
const maxFile = 1 << 20

func readFile(field, path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", field, err)
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		return nil, fmt.Errorf("%s: %s is not a file with credentials", field, path)
	}
	text, err := os.ReadFile(path)
	return text, disk.Wrapf(err, "%s", field)
}

// checkFolder checks that the folder Config.SecondPlace exists. It does not create the
// folder, which may be missing because its disk is not mounted.
func checkFolder(path string) error {
	const field = "second place"
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %s is not there; make the folder, or mount its disk", field, path)
	case err != nil:
		return fmt.Errorf("%s: %w", field, err)
	case !info.IsDir():
		return fmt.Errorf("%s: %s is not a folder", field, path)
	}
	return nil
}
