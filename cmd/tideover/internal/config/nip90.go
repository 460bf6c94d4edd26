package config

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/nostr"
)

// HiddenVariables returns the names of the variables that no command gets: they hold
// secrets for this process alone.
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

// section reads the section.
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

// nostrKey reads the reference to the secret key, and checks what it leads to at
// the moment.
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

// readCustomers reads the public keys of those whose jobs are taken.
func readCustomers(at place) []string {
	if at.IsList() && len(at.Node.Items) == 0 {
		at.Bad("the list is empty, so all jobs would be rejected; leave customers out to accept all customers")
	}
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

// readPublicText reads a text of at most so many characters, which is public.
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

// readRequestAge reads how old a request may be.
func readRequestAge(at place) time.Duration {
	d := strictyaml.ReadDuration(at)
	if d > maxRequestAge {
		at.Bad("%q is too long; want at most %s", at.Node.Text, textfmt.CompactDuration(maxRequestAge))
	}
	return d
}
