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
func (r *jobReader) nip90Keys(n *nip90.Spec) []key {
	return []key{
		strictyaml.Required(strictyaml.Field(&n.Key, "key", "", aloneSchema, r.nostrKey,
			"The secret key that signs our events, nsec1… or 64 hex digits, as a reference: ${env:NAME} or ${file:path}.")),
		strictyaml.Required(strictyaml.Field(&n.Relays, "relays", "", strictyaml.PatternListSchema(relayPattern), readRelays,
			"Relays to subscribe to and to publish every answer to, such as wss://relay.example.com. Traffic to a ws:// relay is signed but not encrypted.")),
		strictyaml.Required(strictyaml.Field(&n.Kinds, "kinds", "", r.jobKindsSchema, r.jobKinds,
			"Kinds of job requests to accept, 5000 to 5999. Templates see the job in .input. The input is untrusted: put -- before it in a command.")),
		strictyaml.Field(&n.Customers, "customers", "", strictyaml.PatternListSchema(publicPattern), readCustomers,
			"Public keys, npub1… or 64 hex digits, of the customers whose jobs are accepted. Default: all customers."),
		strictyaml.Bool(&n.Open, "open",
			"Whether to accept requests that are not addressed to us by a p tag, too."),
		strictyaml.Bool(&n.Announce, "announce",
			"Whether to publish the offered kinds, with name and about (NIP-89, kind 31990). Default: true, or false if customers is set."),
		publicText(&n.Name, "name", maxJobName,
			"Name of the service in the announcement, at most 100 characters. It is public."),
		publicText(&n.About, "about", maxJobAbout,
			"Description of the service in the announcement, at most 2000 characters. It is public."),
		strictyaml.Map("limits", jobLimitKeys(n), "Limits on accepted jobs."),
	}
}

func (r *jobReader) jobKindsSchema() *jsonschema.Schema {
	keys := r.workflows.jobKeys(r.newJob(0, place{}))
	return &jsonschema.Schema{
		Type: "object", MinProperties: new(1), PropertyNames: strictyaml.PatternSchema(kindPattern)(),
		AdditionalProperties: strictyaml.OneOf(strictyaml.Describe(keys), "run", "http", "workflow"),
	}
}

// publicText is a key for a text of at most so many characters, which is public.
func publicText(dst *string, name string, most int, doc string) key {
	read := func(at place) string { return readPublicText(at, most) }
	return strictyaml.Field(dst, name, "", strictyaml.TextUpToSchema(most), read, doc)
}

func jobLimitKeys(n *nip90.Spec) []key {
	return []key{
		strictyaml.IntUpTo(&n.PerMinute, "per-minute", "10", maxJobRate, `[1-9][0-9]{0,2}|1000`,
			"Jobs per minute of one customer, on average; at most 1000."),
		strictyaml.IntUpTo(&n.Burst, "burst", "5", maxJobRate, `[1-9][0-9]{0,2}|1000`,
			"Jobs of one customer in a burst; at most 1000."),
		strictyaml.IntUpTo(&n.Workers, "workers", "4", maxJobWorkers, `[1-9][0-9]{0,2}|1000`,
			"Jobs of each kind that run at the same time; at most 1000."),
		strictyaml.IntUpTo(&n.Queue, "queue", "64", maxJobQueue, `[1-9][0-9]{0,3}|10000`,
			"Jobs that may wait in the queue, at most 10000; further jobs are rejected."),
		strictyaml.Field(&n.MaxAge, "max-age", "10m", strictyaml.DurationSchema, readRequestAge,
			"Maximum age of a request; older requests are ignored. At most 24h."),
	}
}
