package config

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/nostr"
)

// NIP90 is how jobs are taken from Nostr relays and answered there.
type NIP90 struct {
	Key       *template.SecretText // signs what we say; see [NIP90.SecretKey]
	Relays    []string             // URLs, each once, in the order of the file
	Kinds     []*JobKind           // what is offered, sorted by kind
	Customers []string             // public keys in hex, of whom alone jobs are taken; nil means of everybody
	Open      bool                 // whether requests are taken that are not addressed to us
	Announce  bool                 // whether relays are told what is offered
	Name      string               // of the service, for everybody to read; may be empty
	About     string               // the same

	PerMinute int           // jobs of one customer, in the long run
	Burst     int           // and at once
	Workers   int           // jobs of each kind that are worked on at the same time
	Queue     int           // jobs that wait for one of them, all kinds together
	MaxAge    time.Duration // older requests are not answered
}

// HiddenVariables returns the names of the variables that no command is to see: what
// they hold is for this process alone.
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

// SecretKey returns the key as the reference leads to it now. The redactor learns
// all of its spellings.
func (n *NIP90) SecretKey(r secret.Resolver) (nostr.SecretKey, error) {
	k, err := secretKey(n.Key, r)
	if err != nil {
		return k, fmt.Errorf("nip90: key: %w", err)
	}
	return k, nil
}

func secretKey(s *template.SecretText, r secret.Resolver) (nostr.SecretKey, error) {
	v, err := s.Resolve(r)
	if err != nil {
		return nostr.SecretKey{}, err
	}
	k, err := nostr.ParseSecretKey(v.Reveal())
	if err != nil {
		return k, fmt.Errorf("what %q leads to is no %w", s, err)
	}
	if r.Redactor != nil {
		r.Redactor.Add(spellings(k)...)
	}
	return k, nil
}

// spellings returns a key as nsec1… and in hex, each in the cases that are read.
func spellings(k nostr.SecretKey) []string {
	nsec := k.Reveal()
	digits := hexDigits(nsec)
	return []string{nsec, strings.ToUpper(nsec), digits, strings.ToUpper(digits)}
}

// hexDigits returns the 32 bytes of a key that is spelled nsec1…, which has them in
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

// jobReader reads the section nip90.
type jobReader struct {
	*sharedReader
	policies  *policyReader
	notifiers *notifierReader
	workflows *workflowReader
}

// section reads the section.
func (r *jobReader) section(at strictyaml.Place) *NIP90 {
	n := &NIP90{}
	found, _ := strictyaml.Object(r, at, nip90Keys, n)
	if _, said := found["open"]; !said {
		at.RecordDefault("open", "false")
	}
	if _, said := found["announce"]; !said {
		n.Announce = len(n.Customers) == 0
		at.RecordDefault("announce", strconv.FormatBool(n.Announce))
	}
	if _, said := found["limits"]; !said {
		strictyaml.Object(r, at.Child("limits", strictyaml.NewMap()), jobLimitKeys, n)
	}
	for _, c := range r.notifiers.runs {
		checkMessageCommand(c)
	}
	return n
}

// nostrKey reads the reference to the secret key, and checks what it leads to at
// the moment.
func (r *jobReader) nostrKey(at strictyaml.Place) *template.SecretText {
	s := r.Secret(at)
	if s == nil {
		return nil
	}
	if s.String() != s.Refs()[0].String() {
		at.Hide()
		at.Refuse(s.String(), "there is more than a reference; write it alone")
		return nil
	}
	if _, err := secretKey(s, r.Secrets); err != nil {
		at.Bad("%s", oneline.Error(err))
		return nil
	}
	return s
}

// readCustomers reads the public keys of those whose jobs are taken.
func readCustomers(at strictyaml.Place) (keys []string) {
	var shown []string
	ok := at.Each(func(at strictyaml.Place) {
		s, ok := at.Text()
		if !ok {
			return
		}
		if literal, found := strictyaml.KnownSecret(s); found {
			at.Hide()
			at.Refuse(literal, "this is a secret key, which must not stand in the file; a customer has a public one, npub1…")
			return
		}
		key, err := nostr.ParsePublicKey(s)
		switch {
		case err != nil:
			at.Bad("%q: %v", textfmt.Clip(s, strictyaml.MaxQuoted), err)
		case slices.Contains(keys, key):
			at.Bad("%q is given already", s)
		default:
			keys, shown = append(keys, key), append(shown, s)
		}
	})
	if ok && len(at.Node.Items) == 0 {
		at.Bad("the list is empty, so that nobody's jobs would be taken; leave customers out for everybody's")
	}
	at.Record(strings.Join(shown, ","))
	return keys
}

// readPublicText reads a text that everybody can read, of so many characters at most.
func readPublicText(at strictyaml.Place, most int) string {
	s, ok := at.Text()
	if !ok {
		return ""
	}
	if literal, found := strictyaml.KnownSecret(s); found {
		at.Hide()
		at.Refuse(literal, "a secret must not stand in the file, and everybody can read this text")
		return ""
	}
	switch n := utf8.RuneCountInString(s); {
	case strings.Contains(s, "${") || strings.Contains(s, "{{"):
		at.Bad("%q has a reference or a template, which can't be used here: everybody can read this text", textfmt.Clip(s, strictyaml.MaxQuoted))
	case n > most:
		at.Bad("the text has %d characters; at most %d", n, most)
	}
	at.Record(s)
	return s
}

// readRequestAge reads how old a request may be.
func readRequestAge(at strictyaml.Place) time.Duration {
	d := strictyaml.ReadDuration(at)
	if d > maxRequestAge {
		at.Bad("%q is too long ago; at most %s", at.Node.Text, textfmt.CompactDuration(maxRequestAge))
	}
	return d
}
