package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/cluster"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/internal/textfmt"
)

// engineReader reads the section engine.
type engineReader struct {
	*sharedReader
	secondPlace place // of the key second-place, for a check against server.data
}

// section reads the section engine; environment variables and flags override the file.
func (r *engineReader) section(at place, e *cluster.Config) {
	found := r.layered(at, r.engineKeys(e))
	if _, ok := found["nats"]; !ok {
		for _, name := range slices.Sorted(maps.Keys(found)) {
			found[name].Bad("requires nats, the addresses of the servers; without nats, runs are stored in server.data")
		}
		return
	}
	if _, ok := found["name"]; !ok {
		e.Name = jetstream.DefaultName
		at.RecordDefault("name", e.Name)
	}
	checkIdentity(found)
	checkPair(found, "user", "password")
	checkPair(found, "system-user", "system-password")
	r.addresses(found, e)
}

// checkPair refuses a map that has only one of the keys a and b.
func checkPair(found map[string]place, a, b string) {
	switch {
	case found[a].Node != nil && found[b].Node == nil:
		found[a].Bad("requires %s", b)
	case found[b].Node != nil && found[a].Node == nil:
		found[b].Bad("requires %s", a)
	}
}

// checkIdentity refuses more than one way to authenticate, for the account of the cluster
// and for the system account.
func checkIdentity(found map[string]place) {
	for _, ways := range [][]string{{"credentials", "nkey-seed", "user", "token"}, {"system-credentials", "system-user"}} {
		first := ""
		for _, way := range ways {
			here, given := found[way]
			switch {
			case given && first != "":
				here.Bad("can't be combined with %s; use one way to authenticate", first)
			case given:
				first = way
			}
		}
	}
}

// engineKeys are the keys of the section engine.
func (r *engineReader) engineKeys(e *cluster.Config) []key {
	return []key{
		strictyaml.Field(&e.NATS, "nats", "", addressesSchema, r.natsServers,
			"Addresses of NATS servers with JetStream: nats://host:4222, tls://, ws:// or wss://, as a list or separated by commas. A password in an address must be a reference."),
		strictyaml.Parsed(&e.Name, "name", "", clusterNameSchema,
			strictyaml.Matching(clusterName, "is not a valid name for a cluster; want 1 to 100 lower-case letters, digits and hyphens"),
			"Name of the cluster within NATS; the names of its streams begin with it. Default: tideover."),
		strictyaml.IntUpTo(&e.Shards, "shards", "", jetstream.MaxShards, `[1-9][0-9]?|[1-4][0-9]{2}|50[0-9]|51[0-2]`,
			"Number of parts that the runs are divided into, 1 to 512. Set when the cluster is created; to change it, move the runs to another cluster. Default: 32."),
		strictyaml.IntUpTo(&e.Replicas, "replicas", "", maxReplicas, "[1-5]",
			"Number of NATS servers that store each entry. Set when the cluster is created. Default: 3 if the servers form a NATS cluster, else 1."),
		strictyaml.Field(&e.MaxBytes, "max-bytes", "", strictyaml.SizeSchema, readLogLimit,
			"Largest log of a shard, at least 192MiB. Set when the cluster is created. Default: no limit."),
		strictyaml.Field(&e.LeaseTime, "lease-time", "", strictyaml.DurationSchema, readLeaseTime,
			"Time without a heartbeat after which a process counts as dead, 1s to 5m. With less than 12s, all leases expire when one NATS server dies. Set when the cluster is created. Default: 12s."),
		strictyaml.Field(&e.Credentials, "credentials", "", strictyaml.ScalarSchema,
			r.checkedPath(func(path string) jetstream.Config { return jetstream.Config{Credentials: path} }),
			"Path of a .creds file. The file may be replaced while the server runs."),
		strictyaml.Field(&e.NKeySeed, "nkey-seed", "", strictyaml.ScalarSchema,
			r.checkedPath(func(path string) jetstream.Config { return jetstream.Config{NKeySeed: path} }),
			"Path of a file with the seed of an nkey."),
		strictyaml.Field(&e.User, "user", "", strictyaml.ScalarSchema, r.Open,
			"User name for the NATS servers; may contain references."),
		strictyaml.Field(&e.Password, "password", "", referenceSchema, r.Secret,
			"Password of the user, as a reference: ${env:NAME} or ${file:path}."),
		strictyaml.Field(&e.Token, "token", "", referenceSchema, r.Secret,
			"Token for the NATS servers, as a reference: ${env:NAME} or ${file:path}."),
		{
			Name: "tls", Doc: "Files for TLS connections. The environment variables are TIDEOVER_ENGINE_TLS_CA, TIDEOVER_ENGINE_TLS_CERT and TIDEOVER_ENGINE_TLS_KEY.", Inside: []string{"ca", "cert", "key"},
			Schema: func() *jsonschema.Schema { return strictyaml.OrNull(strictyaml.Describe(r.tlsKeys(new(cluster.TLS)))) },
			Set:    func(at place) { r.tls(at, &e.TLS) },
		},
		strictyaml.Parsed(&e.Member, "member", "", memberSchema, parseMember,
			"Name of this process in the cluster. Default: host name and process id."),
		strictyaml.Func("second-place", "", strictyaml.ScalarSchema, func(at place) {
			e.SecondPlace, r.secondPlace = r.folder(at), at
		}, "Existing folder on a disk that NATS does not use, the same for all processes and not in server.data: a second copy of all snapshots and archives."),
		strictyaml.Field(&e.SystemCredentials, "system-credentials", "", strictyaml.ScalarSchema,
			r.checkedPath(func(path string) jetstream.Config { return jetstream.Config{SystemCredentials: path} }),
			"Path of a .creds file of the NATS system account, with which doctor checks how the servers store data."),
		strictyaml.Field(&e.SystemUser, "system-user", "", strictyaml.ScalarSchema, r.Open,
			"User of the NATS system account, instead of system-credentials."),
		strictyaml.Field(&e.SystemPassword, "system-password", "", referenceSchema, r.Secret,
			"Password of system-user, as a reference: ${env:NAME} or ${file:path}."),
	}
}

const (
	maxReplicas = 5
	maxMember   = 100
)

var clusterName = lazyregexp.New(`^[a-z0-9-]{1,100}$`)

func clusterNameSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"string", "integer", "boolean"}, Pattern: clusterName.String()}
}

func memberSchema() *jsonschema.Schema {
	s := strictyaml.ScalarSchema()
	s.MinLength, s.MaxLength = new(1), new(maxMember)
	return s
}

func parseMember(s string) (string, error) {
	if s == "" || utf8.RuneCountInString(s) > maxMember || strings.ContainsFunc(s, unicode.IsControl) {
		return "", fmt.Errorf("%q is not a valid name for a process; want 1 to %d characters, and no control characters",
			textfmt.Clip(s, strictyaml.MaxQuoted), maxMember)
	}
	return s, nil
}

// minLog is the smallest max-bytes of a log. A snapshot is made after 64 MiB, and the log
// is then truncated up to the snapshot before it. So the log holds up to 128 MiB, and
// entries that arrive meanwhile need room too. A smaller log could fill up before it is
// truncated, and would stay full.
const minLog = 3 * 64 << 20

func readLogLimit(at place) int64 {
	n := strictyaml.ReadSize(at)
	if n != 0 && n < minLog {
		at.Bad("%q is too small: a log is truncated after 64MiB and keeps as much again; want 192MiB or more, or leave it out", at.Node.Text)
	}
	return n
}

func readLeaseTime(at place) time.Duration {
	d := strictyaml.ReadDuration(at)
	switch {
	case d != 0 && d < time.Second:
		at.Bad("%v is too short; want at least 1s", d)
	case d > jetstream.MaxLeaseTime:
		at.Bad("%v is too long: runs of a dead process would stand still for that time; want 5m or less", d)
	}
	return d
}

// existing reads the path of a file that must exist.
func (r *engineReader) existing(at place) string {
	s, ok := at.Text()
	if !ok {
		return ""
	}
	path := r.path(at, s)
	if _, err := os.Stat(path); err != nil {
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err // without the path, which the message below has as in the file
		}
		at.Bad("%q: %v", s, err)
		return ""
	}
	at.Record(path)
	return path
}

// checkedPath returns a function that reads the path of a file that must exist. The
// function records a problem if the settings that config returns for the path are invalid.
func (r *engineReader) checkedPath(config func(path string) jetstream.Config) func(at place) string {
	return func(at place) string {
		path := r.existing(at)
		c := config(path)
		c.URL = "nats://localhost"
		if err := c.Validate(); path != "" && err != nil {
			misfit(at, path, err)
			return ""
		}
		return path
	}
}

// misfit records an error of [jetstream.Config.Validate] as a problem. The message has the
// path as the configuration file has it.
func misfit(at place, path string, err error) {
	_, text, _ := strings.Cut(oneline.Text(err.Error()), ": ") // without the name of the field
	at.Bad("%s", strings.ReplaceAll(text, path, at.Node.Text))
}

// folder reads and validates the key second-place: the folder for second copies of
// snapshots and archives.
func (r *engineReader) folder(at place) string {
	s, ok := at.Text()
	if !ok {
		return ""
	}
	path := r.path(at, s)
	if s == "" {
		return "" // r.path has refused it
	}
	if err := (jetstream.Config{URL: "nats://localhost", SecondPlace: path}).Validate(); err != nil {
		misfit(at, path, err)
		return ""
	}
	at.Record(path)
	return path
}

// tls reads the section engine.tls and checks the files that it names.
func (r *engineReader) tls(at place, t *cluster.TLS) {
	if at.Node.Kind == strictyaml.KindNull {
		return
	}
	found, _ := strictyaml.Object(at, r.tlsKeys(t))
	checkPair(found, "cert", "key")
	if t.CA != "" {
		if _, err := (cluster.TLS{CA: t.CA}).Config(); err != nil {
			misfit(found["ca"], t.CA, err)
		}
	}
	if t.Cert != "" && t.Key != "" {
		if _, err := (cluster.TLS{Cert: t.Cert, Key: t.Key}).Config(); err != nil {
			misfit(found["cert"], t.Cert, err)
		}
	}
}

func (r *engineReader) tlsKeys(t *cluster.TLS) []key {
	return []key{
		strictyaml.Field(&t.CA, "ca", "", strictyaml.ScalarSchema, r.existing,
			"Certificates of the authorities that sign the servers' certificates, as PEM. Default: the authorities of the operating system."),
		strictyaml.Field(&t.Cert, "cert", "", strictyaml.ScalarSchema, r.existing,
			"Path of the certificate of this process, as PEM."),
		strictyaml.Field(&t.Key, "key", "", strictyaml.ScalarSchema, r.existing,
			"Path of the certificate's private key, as PEM."),
	}
}
