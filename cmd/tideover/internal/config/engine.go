package config

import (
	"maps"
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
	"github.com/tideover/tideover/internal/textfmt"
)

// engineReader reads the section engine.
type engineReader struct {
	*sharedReader
	secondPlace place // of second-place
}

// section reads the section with the variables and the flags over it.
func (r *engineReader) section(at place, e *cluster.Config) {
	if at.Node.Kind == strictyaml.KindNull {
		at.Node = strictyaml.NewMap()
	}
	if at.Node.Kind == strictyaml.KindMap {
		at.Node = layers(r.sharedReader, at, engineKeys)
	}
	found, _ := strictyaml.Object(r, at, engineKeys, e)
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
	checkPairs(found, [][2]string{{"password", "user"}, {"user", "password"}, {"system-password", "system-user"}, {"system-user", "system-password"}})
	r.addresses(found, e)
}

// checkPairs refuses a key without the one that it needs.
func checkPairs(found map[string]place, pairs [][2]string) {
	for _, pair := range pairs {
		if here, ok := found[pair[0]]; ok && found[pair[1]].Node == nil {
			here.Bad("requires %s", pair[1])
		}
	}
}

// checkIdentity refuses several ways to say who we are.
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

var engineKeys = []key[*engineReader, cluster.Config]{
	{
		Name: "nats", Doc: "Addresses of NATS servers with JetStream, such as nats://host:4222, as a list or separated by commas. Runs are shared with all processes that name the same cluster. A password in an address must be a reference.",
		Schema: addressesSchema,
		Set:    func(r *engineReader, at place, e *cluster.Config) { e.NATS = r.natsServers(at) },
	},
	{
		Name: "name", Doc: "Name of the cluster within NATS; the names of its streams begin with it. Default: tideover.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Types: []string{"string", "integer", "boolean"}, Pattern: clusterName.String()}
		},
		Set: func(_ *engineReader, at place, e *cluster.Config) { e.Name = readClusterName(at) },
	},
	{
		Name: "shards", Doc: "Number of shards that the runs are divided into. Set when the cluster is created; can't be changed. Default: 32.", Schema: strictyaml.IntUpToSchema(jetstream.MaxShards, `[1-9][0-9]?|[1-4][0-9]{2}|50[0-9]|51[0-2]`),
		Set: func(_ *engineReader, at place, e *cluster.Config) {
			e.Shards = strictyaml.ReadIntUpTo(at, jetstream.MaxShards)
		},
	},
	{
		Name: "replicas", Doc: "Number of NATS servers that store each entry. Set when the cluster is created. Default: 3 if the servers form a NATS cluster, else 1.", Schema: strictyaml.IntUpToSchema(maxReplicas, "[1-5]"),
		Set: func(_ *engineReader, at place, e *cluster.Config) {
			e.Replicas = strictyaml.ReadIntUpTo(at, maxReplicas)
		},
	},
	{
		Name: "max-bytes", Doc: "Largest log of a shard, at least 192MiB. Set when the cluster is created. Default: no limit.", Schema: strictyaml.SizeSchema,
		Set: func(_ *engineReader, at place, e *cluster.Config) { e.MaxBytes = readLogLimit(at) },
	},
	{
		Name: "lease-time", Doc: "Time without a heartbeat after which a process counts as dead, 1s to 5m. Set when the cluster is created. Default: 12s.", Schema: strictyaml.DurationSchema,
		Set: func(_ *engineReader, at place, e *cluster.Config) { e.LeaseTime = readLeaseTime(at) },
	},
	{
		Name: "credentials", Doc: "Path of a .creds file. The file may be replaced while the server runs.", Schema: strictyaml.ScalarSchema,
		Set: func(r *engineReader, at place, e *cluster.Config) {
			e.Credentials = r.fit(at, func(c *jetstream.Config, path string) { c.Credentials = path })
		},
	},
	{
		Name: "nkey-seed", Doc: "Path of a file with the seed of an nkey.", Schema: strictyaml.ScalarSchema,
		Set: func(r *engineReader, at place, e *cluster.Config) {
			e.NKeySeed = r.fit(at, func(c *jetstream.Config, path string) { c.NKeySeed = path })
		},
	},
	{
		Name: "user", Doc: "User name for the NATS servers; may contain references.", Schema: strictyaml.ScalarSchema,
		Set: func(r *engineReader, at place, e *cluster.Config) { e.User = r.Open(at, "user") },
	},
	{
		Name: "password", Doc: "Password of the user, as a reference: ${env:NAME} or ${file:path}.", Schema: referenceSchema,
		Set: func(r *engineReader, at place, e *cluster.Config) { e.Password = r.Secret(at) },
	},
	{
		Name: "token", Doc: "Token for the NATS servers, as a reference: ${env:NAME} or ${file:path}.", Schema: referenceSchema,
		Set: func(r *engineReader, at place, e *cluster.Config) { e.Token = r.Secret(at) },
	},
	{
		Name: "tls", Doc: "Files for TLS connections. The environment variables are TIDEOVER_ENGINE_TLS_CA, TIDEOVER_ENGINE_TLS_CERT and TIDEOVER_ENGINE_TLS_KEY.", Inside: []string{"ca", "cert", "key"},
		Schema: func() *jsonschema.Schema { return strictyaml.OrNull(strictyaml.Describe(tlsKeys)) },
		Set:    func(r *engineReader, at place, e *cluster.Config) { r.tls(at, &e.TLS) },
	},
	{
		Name: "member", Doc: "Name of this process in the cluster. Default: host name and process id.",
		Schema: func() *jsonschema.Schema {
			s := strictyaml.ScalarSchema()
			s.MinLength, s.MaxLength = new(1), new(maxMember)
			return s
		},
		Set: func(_ *engineReader, at place, e *cluster.Config) { e.Member = readMember(at) },
	},
	{
		Name: "second-place", Doc: "Folder outside NATS, such as a mounted disk, for a second copy of all snapshots and archives.", Schema: strictyaml.ScalarSchema,
		Set: func(r *engineReader, at place, e *cluster.Config) { e.SecondPlace, r.secondPlace = r.folder(at), at },
	},
	{
		Name: "system-credentials", Doc: "Path of a .creds file of the NATS system account, with which doctor checks how the servers store data.", Schema: strictyaml.ScalarSchema,
		Set: func(r *engineReader, at place, e *cluster.Config) {
			e.SystemCredentials = r.fit(at, func(c *jetstream.Config, path string) { c.SystemCredentials = path })
		},
	},
	{
		Name: "system-user", Doc: "User of the NATS system account, instead of system-credentials.", Schema: strictyaml.ScalarSchema,
		Set: func(r *engineReader, at place, e *cluster.Config) { e.SystemUser = r.Open(at, "user") },
	},
	{
		Name: "system-password", Doc: "Password of system-user, as a reference: ${env:NAME} or ${file:path}.", Schema: referenceSchema,
		Set: func(r *engineReader, at place, e *cluster.Config) { e.SystemPassword = r.Secret(at) },
	},
}

const (
	maxReplicas = 5
	maxMember   = 100
)

var clusterName = lazyregexp.New(`^[a-z0-9-]{1,100}$`)

func readClusterName(at place) string {
	s, ok := at.Text()
	if ok && !clusterName.MatchString(s) {
		at.Bad("%q is not a valid name for a cluster; want 1 to 100 lower-case letters, digits and hyphens", s)
		return ""
	}
	if ok {
		at.Record(s)
	}
	return s
}

func readMember(at place) string {
	s, ok := at.Text()
	if ok && (s == "" || utf8.RuneCountInString(s) > maxMember || strings.ContainsFunc(s, unicode.IsControl)) {
		at.Bad("%q is not a valid name for a process; want 1 to %d characters", textfmt.Clip(s, strictyaml.MaxQuoted), maxMember)
		return ""
	}
	if ok {
		at.Record(s)
	}
	return s
}

// minLog is the least that a log may be limited to: it is cut when a snapshot is
// made, after 64 MiB, up to the snapshot before, and what comes meanwhile must fit
// too. In less it may be full before anything is cut off, and then stay so.
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
