package jetstream

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/validate"
)

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
