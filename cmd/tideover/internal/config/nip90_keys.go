package config

import (
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// The largest limits of jobs. What waits and what is counted is kept in memory.
const (
	maxJobRate    = 1000
	maxJobWorkers = 1000
	maxJobQueue   = 10_000
	maxRequestAge = 24 * time.Hour
	maxJobName    = 100  // characters
	maxJobAbout   = 2000 // the same
)

// textUpTo returns the schema of a text of so many characters at most.
func textUpTo(most int) func() *jsonschema.Schema {
	return func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string", MaxLength: &most} }
}

const (
	relayPattern  = `^[Ww][Ss]{1,2}://[^/?#@\s]+(/[^?#\s]*)?$`
	publicPattern = `^(npub1[02-9ac-hj-np-z]{58}|NPUB1[02-9AC-HJ-NP-Z]{58}|[0-9a-fA-F]{64})$`
	kindPattern   = `^5[0-9]{3}$`
)

// nip90Keys are the keys of the section.
var nip90Keys = []key[NIP90]{
	{
		name: "key", required: true, doc: "The secret key that signs what we say, nsec1… or 64 hex digits, as a reference: ${env:NAME} or ${file:path}.", schema: aloneSchema,
		set: func(l *loader, at place, n *NIP90) { n.Key = l.nostrKey(at) },
	},
	{
		name: "relays", required: true, doc: "Relays that are listened to, and that get every answer: wss://relay.example.com. What goes to one by ws:// others can read on the way; it is signed, though.",
		schema: func() *jsonschema.Schema { return patternListSchema(relayPattern) },
		set:    func(l *loader, at place, n *NIP90) { n.Relays = l.relays(at) },
	},
	{
		name: "kinds", required: true, doc: "What is offered, by the kind of the requests, 5000 to 5999. Templates see the job in .input; strangers wrote it, so put -- before it in a command.",
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{
				Type: "object", MinProperties: new(1), PropertyNames: &jsonschema.Schema{Type: "string", Pattern: kindPattern},
				AdditionalProperties: oneOf(describe(jobKeys), "run", "http", "workflow"),
			}
		},
		set: func(l *loader, at place, n *NIP90) { n.Kinds = l.jobKinds(at) },
	},
	{
		name: "customers", doc: "Public keys, npub1… or 64 hex digits, of those whose jobs are taken; everybody's unless said.",
		schema: func() *jsonschema.Schema { return patternListSchema(publicPattern) },
		set:    func(l *loader, at place, n *NIP90) { n.Customers = l.customers(at) },
	},
	{
		name: "open", doc: "Whether requests are taken, too, that are not addressed to us by a p tag.", schema: boolSchema,
		set: func(l *loader, at place, n *NIP90) { n.Open = l.truth(at) },
	},
	{
		name: "announce", doc: "Whether relays are told which kinds are offered, with name and about (NIP-89, kind 31990); true unless said, or false if there are customers.", schema: boolSchema,
		set: func(l *loader, at place, n *NIP90) { n.Announce = l.truth(at) },
	},
	{
		name: "name", doc: "Name of the service in the announcement, 100 characters at most. Everybody can read it.", schema: textUpTo(maxJobName),
		set: func(l *loader, at place, n *NIP90) { n.Name = l.publicText(at, maxJobName) },
	},
	{
		name: "about", doc: "What the service does, in the announcement, 2000 characters at most. Everybody can read it.", schema: textUpTo(maxJobAbout),
		set: func(l *loader, at place, n *NIP90) { n.About = l.publicText(at, maxJobAbout) },
	},
	{
		name: "limits", doc: "How much is taken.",
		schema: func() *jsonschema.Schema { return describe(jobLimitKeys) },
		set:    func(l *loader, at place, n *NIP90) { object(l, at, jobLimitKeys, n) },
	},
}

func patternListSchema(pattern string) *jsonschema.Schema {
	item := &jsonschema.Schema{Type: "string", Pattern: pattern}
	return &jsonschema.Schema{Type: "array", MinItems: new(1), Items: item, UniqueItems: true}
}

var jobLimitKeys = []key[NIP90]{
	{
		name: "per-minute", def: "10", doc: "Jobs of one customer a minute, in the long run; 1000 at most.", schema: upTo(maxJobRate, `[1-9][0-9]{0,2}|1000`),
		set: func(l *loader, at place, n *NIP90) { n.PerMinute = l.numberUpTo(at, maxJobRate) },
	},
	{
		name: "burst", def: "5", doc: "Jobs of one customer at once; 1000 at most.", schema: upTo(maxJobRate, `[1-9][0-9]{0,2}|1000`),
		set: func(l *loader, at place, n *NIP90) { n.Burst = l.numberUpTo(at, maxJobRate) },
	},
	{
		name: "workers", def: "4", doc: "Jobs of each kind that are worked on at the same time; 1000 at most.", schema: upTo(maxJobWorkers, `[1-9][0-9]{0,2}|1000`),
		set: func(l *loader, at place, n *NIP90) { n.Workers = l.numberUpTo(at, maxJobWorkers) },
	},
	{
		name: "queue", def: "64", doc: "Jobs that wait to be worked on; more are refused; 10000 at most.", schema: upTo(maxJobQueue, `[1-9][0-9]{0,3}|10000`),
		set: func(l *loader, at place, n *NIP90) { n.Queue = l.numberUpTo(at, maxJobQueue) },
	},
	{
		name: "max-age", def: "10m", doc: "Requests older than that are not answered; 24h at most.", schema: durationSchema,
		set: func(l *loader, at place, n *NIP90) { n.MaxAge = l.requestAge(at) },
	},
}
