package nip90

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/nostr"
)

// Spec is the section nip90 of the configuration: which jobs are accepted from Nostr
// relays.
type Spec struct {
	Key       *template.SecretText // signs events; see [Spec.SecretKey]
	Relays    []string             // distinct URLs, in the order of the file
	Kinds     []*JobKind           // kinds of jobs that are accepted, sorted by kind
	Customers []string             // public keys, in hex, of the customers whose jobs are accepted; nil means all customers
	Open      bool                 // whether requests that are not addressed to us are accepted, too
	Announce  bool                 // whether the kinds are announced at relays
	Name      string               // name of the service in the announcement; may be empty
	About     string               // description of the service in the announcement; may be empty

	PerMinute int           // jobs of one customer per minute, on average
	Burst     int           // jobs of one customer in a burst
	Workers   int           // jobs of each kind that run at the same time
	Queue     int           // further jobs that may wait, of all kinds together
	MaxAge    time.Duration // older requests are ignored
}

// ResolveKey returns the current value of the secret key s, and adds all its forms to the
// redactor.
func ResolveKey(s *template.SecretText, r secret.Resolver) (nostr.SecretKey, error) {
	v, err := s.Resolve(r)
	if err != nil {
		return nostr.SecretKey{}, err
	}
	k, err := nostr.ParseSecretKey(v.Reveal())
	if err != nil {
		return k, fmt.Errorf("the value of %q is not usable: %w", s, err)
	}
	if r.Redactor != nil {
		r.Redactor.Add(keyForms(k)...)
	}
	return k, nil
}

// keyForms returns a key as nsec1… and in hex, in lower and in upper case.
func keyForms(k nostr.SecretKey) []string {
	nsec := k.Reveal()
	digits := hexDigits(nsec)
	return []string{nsec, strings.ToUpper(nsec), digits, strings.ToUpper(digits)}
}

// hexDigits returns the 32 bytes of a key of the form nsec1… in hex. After the prefix,
// each character of the key has five bits; the last six characters are a checksum.
func hexDigits(nsec string) string {
	const alphabet, checksum = "qpzry9x8gf2tvdw0s3jn54khce6mua7l", 6
	word := strings.TrimPrefix(nsec, "nsec1")
	n := new(big.Int)
	for _, c := range word[:max(len(word)-checksum, 0)] {
		n.Lsh(n, 5).Or(n, big.NewInt(int64(strings.IndexRune(alphabet, c))))
	}
	n.Rsh(n, 4) // 52 characters have four bits more than 32 bytes
	return fmt.Sprintf("%064x", n)
}

// JobKind configures the jobs of one kind. Each job runs a step or a workflow of the file.
type JobKind struct {
	Kind       int           // of the requests, 5000 to 5999
	Step       *steps.Step   // command or HTTP request, with the id "job"; nil for a workflow
	Workflow   string        // name of the workflow; "" for a step
	Timeout    time.Duration // for requests that state none, in whole seconds
	MaxTimeout time.Duration // longest timeout of a request; longer ones are reduced to it; whole seconds
	MaxTotal   time.Duration // time limit for a job with all its attempts and waits; MaxTimeout if Total
	Total      bool          // the timeout limits the whole job, not each attempt; always true for a workflow
	Price      int64         // of a result, in thousandths of a satoshi; 0 means free
}

// Name returns the name of the engine's workflow for these jobs.
func (j *JobKind) Name() string { return Prefix + strconv.Itoa(j.Kind) }

// JobVariables returns the fields of .input in templates of jobs, sorted.
func JobVariables() []template.Variable {
	return []template.Variable{
		{Name: "customer", Doc: "Public key of the customer, in hex."},
		{Name: "id", Doc: "Id of the request, in hex."},
		{Name: "inputs", Doc: "Inputs of the request: a list of maps with `data`, `type`, `relay` and `marker`."},
		{Name: "kind", Doc: "Kind of the request, a number from 5000 to 5999."},
		{Name: "output", Doc: "Media type that the customer wants; empty if the request has none."},
		{Name: "params", Doc: "Parameters of the request: a map whose values are lists of texts."},
		{Name: "task", Doc: "Content of the request."},
		{Name: "timeout", Doc: "Time limit of the job, in seconds."},
	}
}

// JobFields returns the names of [JobVariables].
func JobFields() []string { return template.Names(JobVariables()) }
