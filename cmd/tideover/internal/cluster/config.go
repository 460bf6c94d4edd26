package cluster

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/internal/secret"
)

// Config configures the cluster that stores the runs. If NATS is empty there is no
// cluster, and runs are stored in the data folder of the server.
type Config struct {
	NATS []*template.SecretText // addresses of the NATS servers

	Name        string        // of the cluster
	Shards      int           // 0 means the number of an existing cluster, or the default for a new one
	Replicas    int           // NATS servers that store each entry; 0 means 3 if the servers form a NATS cluster, else 1
	MaxBytes    int64         // largest log of a shard; 0 means no limit
	LeaseTime   time.Duration // 0 means the time of an existing cluster, or the default for a new one
	Member      string        // name of this process; "" means host name and process id
	SecondPlace string        // folder for a second copy of snapshots and archives; "" means none

	Credentials string               // path of a .creds file; "" for none
	NKeySeed    string               // path of a file with the seed; "" for none
	User        *template.SecretText // nil means none, also for the secrets below
	Password    *template.SecretText
	Token       *template.SecretText
	TLS         TLS

	// Login to the NATS system account, for checks of the servers.
	SystemCredentials string // path of a .creds file; "" for none
	SystemUser        *template.SecretText
	SystemPassword    *template.SecretText
}

// TLS has the paths of the files for TLS connections: the certificates of the authorities,
// and the certificate and the key of this process. "" means that the file is not used.
type TLS struct{ CA, Cert, Key string }

// Clustered reports whether runs are shared with other processes.
func (c *Config) Clustered() bool { return len(c.NATS) > 0 }

// Log returns the configuration of the cluster's log, with the current values of its
// secrets. The caller adds the folder and the logger.
func (c *Config) Log(secrets secret.Resolver) (jetstream.Config, error) {
	out := jetstream.Config{
		Name: c.Name, Shards: c.Shards, Replicas: c.Replicas, MaxBytes: c.MaxBytes, LeaseTime: c.LeaseTime,
		Credentials: c.Credentials, NKeySeed: c.NKeySeed, SystemCredentials: c.SystemCredentials,
		MemberName: c.Member, SecondPlace: c.SecondPlace,
	}
	urls := make([]string, len(c.NATS))
	var errs []error
	for i, s := range c.NATS {
		u, err := ResolveAddress(s, secrets)
		if err != nil {
			errs = append(errs, fmt.Errorf("engine.nats: %w", err))
		}
		urls[i] = u.Reveal()
	}
	out.URL = strings.Join(urls, ",")
	for _, v := range []struct {
		name string
		text *template.SecretText
		to   *string
	}{
		{"user", c.User, &out.User}, {"password", c.Password, &out.Password}, {"token", c.Token, &out.Token},
		{"system-user", c.SystemUser, &out.SystemUser}, {"system-password", c.SystemPassword, &out.SystemPassword},
	} {
		if v.text == nil {
			continue
		}
		value, err := v.text.Resolve(secrets)
		if err != nil {
			errs = append(errs, fmt.Errorf("engine.%s: %w", v.name, err))
		}
		*v.to = value.Reveal()
	}
	var err error
	if out.TLS, err = c.TLS.Config(); err != nil {
		errs = append(errs, fmt.Errorf("engine.tls: %w", err))
	}
	return out, errors.Join(errs...)
}

// Config returns the TLS settings of connections. It returns nil if no file is set: then
// the scheme of the address alone determines whether TLS is used.
func (t TLS) Config() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil //nolint:nilnil // documented
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: there is no certificate in %s", t.CA)
		}
	}
	if t.Cert == "" {
		return c, nil
	}
	if _, err := tls.LoadX509KeyPair(t.Cert, t.Key); err != nil {
		return nil, fmt.Errorf("cert, key: %w", err)
	}
	// Read the files again for each connection, because they may have been renewed.
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		return &pair, err
	}
	return c, nil
}

// ParseAddress parses the address of a server. The default scheme is nats.
func ParseAddress(text string) (*url.URL, error) {
	text = strings.TrimSpace(text)
	if !strings.Contains(text, "://") {
		text = "nats://" + text
	}
	return url.Parse(text)
}

// MaskReferences replaces each character of a reference by x, so that positions in the
// text stay the same.
func MaskReferences(text string) string {
	return template.ReplaceRefs(text, func(ref string) string { return strings.Repeat("x", len(ref)) })
}

// SplitAddress splits an address into the scheme with ://, the user with the password, and
// the rest, which begins with @ if there is a user. Any part may be a reference.
func SplitAddress(src string) (scheme, user, rest string) {
	masked := MaskReferences(src)
	begin := 0
	if i := strings.Index(masked, "://"); i >= 0 {
		begin = i + len("://")
	}
	end := max(strings.LastIndexByte(masked, '@'), begin)
	return src[:begin], src[begin:end], src[end:]
}

// ResolveAddress resolves the references in an address. The values of references in the
// user and the password are URL-escaped, so they may have any characters. If the whole
// address is a secret, the password in it is added to the redactor, too.
func ResolveAddress(s *template.SecretText, r secret.Resolver) (out secret.String, err error) {
	scheme, user, rest := SplitAddress(s.String())
	if user == "" {
		out, err = s.Resolve(r)
		if err == nil {
			addSecrets(out.Reveal(), r.Redactor)
		}
		return out, err
	}
	value := func(word string) string {
		ref, e := secret.ParseRef(word)
		var v secret.String
		if e == nil {
			v, e = r.Resolve(ref, s.Dir())
		}
		err = cmp.Or(err, e)
		return v.Reveal()
	}
	escaped := func(word string) string { return strings.ReplaceAll(url.QueryEscape(value(word)), "+", "%20") }
	address := scheme + template.ReplaceRefs(user, escaped) + template.ReplaceRefs(rest, value)
	return secret.New(address), err
}

// addSecrets adds the passwords and tokens in addresses, separated by commas, to the
// redactor.
func addSecrets(addresses string, r *secret.Redactor) {
	if r == nil {
		return
	}
	for part := range strings.SplitSeq(addresses, ",") {
		u, err := ParseAddress(part)
		if err != nil || u.User == nil {
			continue
		}
		if password, ok := u.User.Password(); ok {
			r.Add(password)
		} else {
			r.Add(u.User.Username())
		}
		r.Add(u.User.String())
	}
}
