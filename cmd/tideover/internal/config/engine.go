package config

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/textfmt"
)

// Engine is where runs are kept: in the server's folder, unless there is a
// cluster.
type Engine struct {
	NATS []*SecretText // addresses of the servers; none means the folder

	Name        string        // of the cluster
	Shards      int           // 0 means what the cluster has, or the default
	Replicas    int           // 0 means what the servers can do
	MaxBytes    int64         // of a shard's log; 0 means no limit
	LeaseTime   time.Duration // 0 means what the cluster has, or the default
	Member      string        // name of this process; empty means host and process id
	SecondPlace string        // folder; empty means none

	Credentials string      // path
	NKeySeed    string      // path
	User        *SecretText // nil means none, here and below
	Password    *SecretText
	Token       *SecretText
	TLS         TLS

	SystemCredentials string // path
	SystemUser        *SecretText
	SystemPassword    *SecretText
}

// TLS is the files with which a connection is made. Empty ones are not used.
type TLS struct{ CA, Cert, Key string }

// Clustered reports whether runs are shared with other processes.
func (e *Engine) Clustered() bool { return len(e.NATS) > 0 }

// engine reads the section with the variables and the flags over it.
func (l *loader) engine(at place, e *Engine) {
	if at.node.kind == nullKind {
		at.node = &node{kind: mapKind}
	}
	if at.node.kind == mapKind {
		at.node = layers(l, at, engineKeys)
	}
	found, _ := object(l, at, engineKeys, e)
	if _, ok := found["nats"]; !ok {
		for _, name := range slices.Sorted(maps.Keys(found)) {
			l.bad(found[name], "needs nats, the addresses of the servers; without it runs are kept in server.data")
		}
		return
	}
	if _, ok := found["name"]; !ok {
		e.Name = jetstream.DefaultName
		l.value(at.child("name", given("", "default")), e.Name)
	}
	l.oneIdentity(found)
	l.paired(found, [][2]string{{"password", "user"}, {"user", "password"}, {"system-password", "system-user"}, {"system-user", "system-password"}})
	l.addresses(found, e)
}

// paired refuses a key without the one that it needs.
func (l *loader) paired(found map[string]place, pairs [][2]string) {
	for _, pair := range pairs {
		if here, ok := found[pair[0]]; ok && found[pair[1]].node == nil {
			l.bad(here, "needs %s", pair[1])
		}
	}
}

// oneIdentity refuses several ways to say who we are.
func (l *loader) oneIdentity(found map[string]place) {
	for _, ways := range [][]string{{"credentials", "nkey-seed", "user", "token"}, {"system-credentials", "system-user"}} {
		first := ""
		for _, way := range ways {
			here, given := found[way]
			switch {
			case given && first != "":
				l.bad(here, "%s is given already; there is one way to say who we are", first)
			case given:
				first = way
			}
		}
	}
}

var engineKeys = []key[Engine]{
	{
		name: "nats", doc: "Addresses of NATS servers with JetStream, nats://host:4222, as a list or with commas: runs are shared with all processes that name the same cluster. A password in one is a reference.",
		schema: addressesSchema,
		set:    func(l *loader, at place, e *Engine) { e.NATS = l.natsServers(at) },
	},
	{
		name: "name", doc: "Name of the cluster within NATS, with which its streams begin; tideover unless said.",
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Types: []string{"string", "integer", "boolean"}, Pattern: clusterName.String()}
		},
		set: func(l *loader, at place, e *Engine) { e.Name = l.clusterName(at) },
	},
	{
		name: "shards", doc: "Parts that the work has, 32 unless said; at creation, and never changed.", schema: upTo(jetstream.MaxShards, `[1-9][0-9]?|[1-4][0-9]{2}|50[0-9]|51[0-2]`),
		set: func(l *loader, at place, e *Engine) { e.Shards = l.numberUpTo(at, jetstream.MaxShards) },
	},
	{
		name: "replicas", doc: "Servers that keep each entry, at creation; 3 if the servers are a cluster, else 1, unless said.", schema: upTo(maxReplicas, "[1-5]"),
		set: func(l *loader, at place, e *Engine) { e.Replicas = l.numberUpTo(at, maxReplicas) },
	},
	{
		name: "max-bytes", doc: "Largest log of a shard, 192MiB or more, at creation; no limit unless said.", schema: sizeSchema,
		set: func(l *loader, at place, e *Engine) { e.MaxBytes = l.logLimit(at) },
	},
	{
		name: "lease-time", doc: "Silence after which a process is taken for dead, 1s to 5m, at creation; 12s unless said.", schema: durationSchema,
		set: func(l *loader, at place, e *Engine) { e.LeaseTime = l.leaseTime(at) },
	},
	{
		name: "credentials", doc: "Path of a .creds file, which may be renewed while it is used.", schema: scalarSchema,
		set: func(l *loader, at place, e *Engine) {
			e.Credentials = l.fit(at, func(c *jetstream.Config, path string) { c.Credentials = path })
		},
	},
	{
		name: "nkey-seed", doc: "Path of a file with the seed of an nkey.", schema: scalarSchema,
		set: func(l *loader, at place, e *Engine) {
			e.NKeySeed = l.fit(at, func(c *jetstream.Config, path string) { c.NKeySeed = path })
		},
	},
	{
		name: "user", doc: "User at the servers; may have references.", schema: scalarSchema,
		set: func(l *loader, at place, e *Engine) { e.User = l.openText(at, "user") },
	},
	{
		name: "password", doc: "Password of the user, as a reference: ${env:NAME} or ${file:path}.", schema: referenceSchema,
		set: func(l *loader, at place, e *Engine) { e.Password = l.secretText(at) },
	},
	{
		name: "token", doc: "Token for the servers, as a reference: ${env:NAME} or ${file:path}.", schema: referenceSchema,
		set: func(l *loader, at place, e *Engine) { e.Token = l.secretText(at) },
	},
	{
		name: "tls", doc: "Files for connections with TLS. The variables are TIDEOVER_ENGINE_TLS_CA and so on.", inside: []string{"ca", "cert", "key"},
		schema: func() *jsonschema.Schema { return orNull(describe(tlsKeys)) },
		set:    func(l *loader, at place, e *Engine) { l.tls(at, &e.TLS) },
	},
	{
		name: "member", doc: "Name of this process among those of the cluster; its host and process id unless said.",
		schema: func() *jsonschema.Schema {
			s := scalarSchema()
			s.MinLength, s.MaxLength = new(1), new(maxMember)
			return s
		},
		set: func(l *loader, at place, e *Engine) { e.Member = l.member(at) },
	},
	{
		name: "second-place", doc: "Folder outside of NATS, such as a mounted disk, for a second copy of all snapshots and archives.", schema: scalarSchema,
		set: func(l *loader, at place, e *Engine) {
			e.SecondPlace, l.second = l.folder(at), at
		},
	},
	{
		name: "system-credentials", doc: "Path of the .creds file of NATS's system account: with it, doctor sees how the servers store.", schema: scalarSchema,
		set: func(l *loader, at place, e *Engine) {
			e.SystemCredentials = l.fit(at, func(c *jetstream.Config, path string) { c.SystemCredentials = path })
		},
	},
	{
		name: "system-user", doc: "User of NATS's system account, instead.", schema: scalarSchema,
		set: func(l *loader, at place, e *Engine) { e.SystemUser = l.openText(at, "user") },
	},
	{
		name: "system-password", doc: "Its password, as a reference: ${env:NAME} or ${file:path}.", schema: referenceSchema,
		set: func(l *loader, at place, e *Engine) { e.SystemPassword = l.secretText(at) },
	},
}

const (
	maxReplicas = 5
	maxMember   = 100
)

var clusterName = lazyregexp.New(`^[a-z0-9-]{1,100}$`)

func (l *loader) clusterName(at place) string {
	s, ok := l.scalar(at)
	if ok && !clusterName.MatchString(s) {
		l.bad(at, "%q is not a name for a cluster; want 1 to 100 lower-case letters, digits and hyphens", s)
		return ""
	}
	if ok {
		l.value(at, s)
	}
	return s
}

func (l *loader) member(at place) string {
	s, ok := l.scalar(at)
	if ok && (s == "" || utf8.RuneCountInString(s) > maxMember || strings.ContainsFunc(s, unicode.IsControl)) {
		l.bad(at, "%q is not a name for a process; want 1 to %d characters", textfmt.Clip(s, maxQuoted), maxMember)
		return ""
	}
	if ok {
		l.value(at, s)
	}
	return s
}

// minLog is the least that a log may be limited to: it is cut when a snapshot is
// made, after 64 MiB, up to the snapshot before, and what comes meanwhile must fit
// too. In less it may be full before anything is cut off, and then stay so.
const minLog = 3 * 64 << 20

func (l *loader) logLimit(at place) int64 {
	n := l.bytes(at)
	if n != 0 && n < minLog {
		l.bad(at, "%q is too small: a log is cut after 64MiB, and keeps as much; want 192MiB or more, or leave it out", at.node.text)
	}
	return n
}

func (l *loader) leaseTime(at place) time.Duration {
	d := l.duration(at)
	switch {
	case d != 0 && d < time.Second:
		l.bad(at, "%v is less than a second", d)
	case d > jetstream.MaxLeaseTime:
		l.bad(at, "%v is too long: nobody goes on with the work of a process that is gone for as long; want 5m or less", d)
	}
	return d
}

// numberUpTo reads a whole number from 1 on.
func (l *loader) numberUpTo(at place, most int) int {
	n := l.number(at, 1)
	if n > most {
		l.bad(at, "%d is more than %d", n, most)
	}
	return n
}

// upTo returns the schema of a whole number from 1 on; the pattern is of one in
// quotes.
func upTo(most int, pattern string) func() *jsonschema.Schema {
	return func() *jsonschema.Schema {
		s := count(1)()
		s.Maximum, s.Pattern = new(float64(most)), `^\+?0*(`+pattern+`)$`
		return s
	}
}
