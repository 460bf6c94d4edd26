package config

import (
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// The largest limits of jobs. Queues and counters are in memory.
const (
	maxJobRate    = 1000
	maxJobWorkers = 1000
	maxJobQueue   = 10_000
	maxRequestAge = 24 * time.Hour
	maxJobName    = 100  // characters
	maxJobAbout   = 2000 // the same
)

const (
	relayPattern  = `^[Ww][Ss]{1,2}://[^/?#@\s]+(/[^?#\s]*)?$`
	publicPattern = `^(npub1[02-9ac-hj-np-z]{58}|NPUB1[02-9AC-HJ-NP-Z]{58}|[0-9a-fA-F]{64})$`
	kindPattern   = `^5[0-9]{3}$`
)

// nip90Keys are the keys of the section.
var nip90Keys = []key[*jobReader, nip90.Spec]{
	{
		Name: "key", Required: true, Doc: "The secret key that signs our events, nsec1… or 64 hex digits, as a reference: ${env:NAME} or ${file:path}.", Schema: aloneSchema,
		Set: func(r *jobReader, at place, n *nip90.Spec) { n.Key = r.nostrKey(at) },
	},
	{
		Name: "relays", Required: true, Doc: "Relays to subscribe to and to publish every answer to, such as wss://relay.example.com. Traffic to a ws:// relay is signed but not encrypted.",
		Schema: func() *jsonschema.Schema { return strictyaml.PatternListSchema(relayPattern) },
		Set:    func(_ *jobReader, at place, n *nip90.Spec) { n.Relays = readRelays(at) },
	},
	{
		Name: "kinds", Required: true, Doc: "Kinds of job requests to accept, 5000 to 5999. Templates see the job in .input. The input is untrusted: put -- before it in a command.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{
				Type: "object", MinProperties: new(1), PropertyNames: &jsonschema.Schema{Type: "string", Pattern: kindPattern},
				AdditionalProperties: strictyaml.OneOf(strictyaml.Describe(jobKeys), "run", "http", "workflow"),
			}
		},
		Set: func(r *jobReader, at place, n *nip90.Spec) { n.Kinds = r.jobKinds(at) },
	},
	{
		Name: "customers", Doc: "Public keys, npub1… or 64 hex digits, of the customers whose jobs are accepted. Default: all customers.",
		Schema: func() *jsonschema.Schema { return strictyaml.PatternListSchema(publicPattern) },
		Set:    func(_ *jobReader, at place, n *nip90.Spec) { n.Customers = readCustomers(at) },
	},
	{
		Name: "open", Doc: "Whether to accept requests that are not addressed to us by a p tag, too.", Schema: strictyaml.BoolSchema,
		Set: func(_ *jobReader, at place, n *nip90.Spec) { n.Open = strictyaml.ReadBool(at) },
	},
	{
		Name: "announce", Doc: "Whether to publish the offered kinds, with name and about (NIP-89, kind 31990). Default: true, or false if customers is set.", Schema: strictyaml.BoolSchema,
		Set: func(_ *jobReader, at place, n *nip90.Spec) { n.Announce = strictyaml.ReadBool(at) },
	},
	{
		Name: "name", Doc: "Name of the service in the announcement, at most 100 characters. It is public.", Schema: strictyaml.TextUpToSchema(maxJobName),
		Set: func(_ *jobReader, at place, n *nip90.Spec) { n.Name = readPublicText(at, maxJobName) },
	},
	{
		Name: "about", Doc: "Description of the service in the announcement, at most 2000 characters. It is public.", Schema: strictyaml.TextUpToSchema(maxJobAbout),
		Set: func(_ *jobReader, at place, n *nip90.Spec) { n.About = readPublicText(at, maxJobAbout) },
	},
	{
		Name: "limits", Doc: "Limits on accepted jobs.",
		Schema: func() *jsonschema.Schema { return strictyaml.Describe(jobLimitKeys) },
		Set:    func(r *jobReader, at place, n *nip90.Spec) { strictyaml.Object(r, at, jobLimitKeys, n) },
	},
}

var jobLimitKeys = []key[*jobReader, nip90.Spec]{
	{
		Name: "per-minute", Default: "10", Doc: "Jobs per minute of one customer, on average; at most 1000.", Schema: strictyaml.IntUpToSchema(maxJobRate, `[1-9][0-9]{0,2}|1000`),
		Set: func(_ *jobReader, at place, n *nip90.Spec) { n.PerMinute = strictyaml.ReadIntUpTo(at, maxJobRate) },
	},
	{
		Name: "burst", Default: "5", Doc: "Jobs of one customer in a burst; at most 1000.", Schema: strictyaml.IntUpToSchema(maxJobRate, `[1-9][0-9]{0,2}|1000`),
		Set: func(_ *jobReader, at place, n *nip90.Spec) { n.Burst = strictyaml.ReadIntUpTo(at, maxJobRate) },
	},
	{
		Name: "workers", Default: "4", Doc: "Jobs of each kind that run at the same time; at most 1000.", Schema: strictyaml.IntUpToSchema(maxJobWorkers, `[1-9][0-9]{0,2}|1000`),
		Set: func(_ *jobReader, at place, n *nip90.Spec) { n.Workers = strictyaml.ReadIntUpTo(at, maxJobWorkers) },
	},
	{
		Name: "queue", Default: "64", Doc: "Jobs that may wait in the queue, at most 10000; further jobs are rejected.", Schema: strictyaml.IntUpToSchema(maxJobQueue, `[1-9][0-9]{0,3}|10000`),
		Set: func(_ *jobReader, at place, n *nip90.Spec) { n.Queue = strictyaml.ReadIntUpTo(at, maxJobQueue) },
	},
	{
		Name: "max-age", Default: "10m", Doc: "Maximum age of a request; older requests are ignored. At most 24h.", Schema: strictyaml.DurationSchema,
		Set: func(_ *jobReader, at place, n *nip90.Spec) { n.MaxAge = readRequestAge(at) },
	},
}
