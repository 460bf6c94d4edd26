package nip90

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/nostr"
)

// Spec is which jobs are taken from Nostr relays.
type Spec struct {
	Key       *template.SecretText // signs events; see [Spec.SecretKey]
	Relays    []string             // URLs, each once, in the order of the file
	Kinds     []*JobKind           // what is offered, sorted by kind
	Customers []string             // public keys in hex, whose jobs are taken; nil means everyone
	Open      bool                 // whether requests are taken that are not addressed to us
	Announce  bool                 // whether the offer is published at relays
	Name      string               // of the service, public; may be empty
	About     string               // the same

	PerMinute int           // jobs of one customer, in the long run
	Burst     int           // and at once
	Workers   int           // jobs of each kind that are worked on at the same time
	Queue     int           // jobs that wait for one of them, all kinds together
	MaxAge    time.Duration // older requests are not answered
}

// SecretKey returns the key that the reference leads to now, and adds all its forms to
// the redactor.
func (n *Spec) SecretKey(r secret.Resolver) (nostr.SecretKey, error) {
	k, err := ResolveKey(n.Key, r)
	if err != nil {
		return k, fmt.Errorf("nip90: key: %w", err)
	}
	return k, nil
}

// ResolveKey returns the key that the reference leads to, and adds it to the redactor.
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

// hexDigits returns the 32 bytes of a key in the form nsec1…, which has them in
// groups of five bits between that and a checksum.
func hexDigits(nsec string) string {
	const alphabet, checksum = "qpzry9x8gf2tvdw0s3jn54khce6mua7l", 6
	word := strings.TrimPrefix(nsec, "nsec1")
	n := new(big.Int)
	for _, c := range word[:max(len(word)-checksum, 0)] {
		n.Lsh(n, 5).Or(n, big.NewInt(int64(strings.IndexRune(alphabet, c))))
	}
	n.Rsh(n, 4) // 52 groups have four bits more than 32 bytes
	return fmt.Sprintf("%064x", n)
}

// JobKind is the work for the requests of one kind: a step, or a workflow of the file.
type JobKind struct {
	Kind       int           // of the requests, 5000 to 5999
	Step       *steps.Step   // the command or the request, with the id "job"; nil for a workflow
	Workflow   string        // the workflow's name; empty for a step
	Timeout    time.Duration // of a request that has none, in whole seconds
	MaxTimeout time.Duration // longer ones are cut to it; whole seconds
	MaxTotal   time.Duration // ends a job with all its attempts and waits; MaxTimeout if Total
	Total      bool          // the timeout is of the job, and not of each attempt; always for a workflow
	Price      int64         // of a result, in thousandths of a satoshi; 0 means that it is free
}

// Name returns the name of the workflow of the jobs.
func (j *JobKind) Name() string { return Prefix + strconv.Itoa(j.Kind) }

// jobFields are the fields of a job, which is .input of its templates.
var jobFields = []string{"customer", "id", "inputs", "kind", "output", "params", "task", "timeout"}

// JobFields returns the fields of .input in templates of jobs, sorted.
func JobFields() []string { return slices.Clone(jobFields) }
