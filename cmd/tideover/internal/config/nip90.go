package config

import (
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/nostr"
)

// HiddenVariables returns the names of the environment variables that no command gets,
// because they contain the secret key of NIP-90.
func (c *Config) HiddenVariables() (names []string) {
	if c.NIP90 == nil || c.NIP90.Key == nil {
		return nil
	}
	for _, ref := range c.NIP90.Key.Refs() {
		if ref.Kind == "env" {
			names = append(names, ref.Name)
		}
	}
	return names
}

// jobReader reads the section nip90.
type jobReader struct {
	*sharedReader
	policies  *policyReader
	notifiers *notifierReader
	workflows *workflowReader
}

// section reads the section nip90, sets the defaults that depend on other keys, and checks
// the commands of notifiers, whose messages may contain text of a job.
func (r *jobReader) section(at place) *nip90.Spec {
	n := &nip90.Spec{}
	found, _ := strictyaml.Object(at, r.nip90Keys(n))
	if _, said := found["open"]; !said {
		at.RecordDefault("open", "false")
	}
	if _, said := found["announce"]; !said {
		n.Announce = len(n.Customers) == 0
		at.RecordDefault("announce", strconv.FormatBool(n.Announce))
	}
	if _, said := found["limits"]; !said {
		strictyaml.Object(at.Child("limits", strictyaml.NewMap()), jobLimitKeys(n))
	}
	for _, c := range r.notifiers.runs {
		checkMessageCommand(c)
	}
	return n
}

// nostrKey reads the reference to the secret key, and checks its current value.
func (r *jobReader) nostrKey(at place) *template.SecretText {
	s := r.Secret(at)
	if s == nil {
		return nil
	}
	if s.String() != s.Refs()[0].String() {
		at.Hide()
		at.Refuse(s.String(), "expected a reference and nothing else")
		return nil
	}
	if _, err := nip90.ResolveKey(s, r.Secrets); err != nil {
		at.Bad("%s", oneline.Error(err))
		return nil
	}
	return s
}

// readCustomers reads the public keys of the customers whose jobs are accepted.
func readCustomers(at place) []string {
	refuseEmpty(at, "the list is empty, so all jobs would be rejected; leave customers out to accept all customers")
	recordItems(at)
	return readDistinct(at, func(at place, s string) (key string, ok bool) {
		if literal, found := strictyaml.KnownSecret(s); found {
			at.Hide()
			at.Refuse(literal, "this is a secret key, which must not be in the file; want the customer's public key, npub1…")
			return "", false
		}
		key, err := nostr.ParsePublicKey(s)
		if err != nil {
			at.Bad("%q: %v", textfmt.Clip(s, strictyaml.MaxQuoted), err)
		}
		return key, err == nil
	})
}

// readPublicText reads a text; most is the most characters. Because the text is published,
// it refuses secrets, references and templates.
func readPublicText(at place, most int) string {
	s, ok := at.Text()
	if !ok {
		return ""
	}
	if literal, found := strictyaml.KnownSecret(s); found {
		at.Hide()
		at.Refuse(literal, "secrets can't be used here: this text is public")
		return ""
	}
	switch n := utf8.RuneCountInString(s); {
	case strings.Contains(s, "${") || strings.Contains(s, "{{"):
		at.Bad("%q has a reference or a template, which can't be used here: this text is public", textfmt.Clip(s, strictyaml.MaxQuoted))
	case n > most:
		at.Bad("the text has %d characters; at most %d", n, most)
	}
	at.Record(s)
	return s
}

// readRequestAge reads the maximum age of a request, which is at most maxRequestAge.
func readRequestAge(at place) time.Duration {
	d := strictyaml.ReadDuration(at)
	if d > maxRequestAge {
		at.Bad("%q is too long; want at most %s", at.Node.Text, textfmt.CompactDuration(maxRequestAge))
	}
	return d
}

// The largest values of the limits on jobs. They are bounded because queues and counters
// are in memory.
const (
	maxJobRate    = 1000
	maxJobWorkers = 1000
	maxJobQueue   = 10_000
	maxRequestAge = 24 * time.Hour
	maxJobName    = 100  // characters
	maxJobAbout   = 2000 // characters
)

const (
	relayPattern  = `^[Ww][Ss]{1,2}://[^/?#@\s]+(/[^?#\s]*)?$`
	publicPattern = `^(npub1[02-9ac-hj-np-z]{58}|NPUB1[02-9AC-HJ-NP-Z]{58}|[0-9a-fA-F]{64})$`
	kindPattern   = `^5[0-9]{3}$`
)

// nip90Keys are the keys of the section nip90.
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

// publicText returns a key that [readPublicText] reads.
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

// readRelays reads the URLs of the relays, without duplicates.
func readRelays(at place) []string {
	refuseEmpty(at, "the list of relays is empty; add at least one")
	recordItems(at)
	return readDistinct(at, readRelay)
}

// readRelay reads the URL of a relay and returns its normal form, by which duplicates are
// found. Unlike http:// for a provider with a key, ws:// to another machine is allowed:
// events are signed and public, and the secret key is never sent.
func readRelay(at place, s string) (normal string, ok bool) {
	if literal, found := template.URLSecret(s); found {
		at.Hide()
		at.Refuse(literal, "a relay address can't contain a secret; relays authenticate us by nip90.key")
		return "", false
	}
	normal, msg := parseRelay(s)
	switch {
	case msg == "":
	case strings.ContainsAny(s, "@?#"): // it may contain a misplaced password
		at.Hide()
		at.Refuse(s, "this "+msg)
	default:
		at.Bad("%q %s", s, msg)
	}
	return normal, msg == ""
}

// parseRelay returns the normal form of a relay's URL, or what is wrong with it.
func parseRelay(s string) (normal, wrong string) {
	u, err := url.Parse(s)
	switch {
	case strings.Contains(s, "${") || strings.Contains(s, "{{"):
		return "", "has a reference or a template, which can't be used here: the list of relays is public"
	case err != nil:
		return "", "is not a URL"
	case u.Scheme != "ws" && u.Scheme != "wss":
		return "", "is not a URL that starts with wss:// or ws://"
	case u.User != nil:
		return "", "has a user in it; leave it out, because relays authenticate us by nip90.key"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(s, "#"):
		return "", "has a query or a fragment; want only a host and a path"
	}
	if _, msg := parseHost(u.Hostname()); msg != "" {
		return "", "has no valid host name"
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", "has an invalid port; want 1 to 65535"
		}
	}
	return normalRelay(u), ""
}

// normalRelay returns a URL with a lower-case host and without a default port and final
// slashes, as package nostr compares URLs.
func normalRelay(u *url.URL) string {
	c := *u
	c.Host = strings.ToLower(c.Host)
	c.Host = strings.TrimSuffix(c.Host, map[string]string{"ws": ":80", "wss": ":443"}[c.Scheme])
	c.Host = strings.TrimSuffix(c.Host, ":")
	c.Path, c.RawPath = strings.TrimRight(c.Path, "/"), ""
	return c.String()
}
