package config

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
)

// readRelays reads where jobs come from.
func readRelays(at place) []string {
	if at.IsList() && len(at.Node.Items) == 0 {
		at.Bad("the list of relays is empty; add at least one")
	}
	recordItems(at)
	return readDistinct(at, readRelay)
}

// readRelay reads one of them in its normal form, in which they are compared. ws:// may
// go to other machines, as http:// of a provider may that is sent no secret: events
// are signed and public, and the key stays here.
func readRelay(at place, s string) (normal string, ok bool) {
	literal, found := template.URLSecret(s)
	if !found {
		literal, found = strictyaml.KnownSecret(s)
	}
	if found {
		at.Hide()
		at.Refuse(literal, "a relay address can't contain a secret; relays authenticate us by nip90.key")
		return "", false
	}
	normal, msg := parseRelay(s)
	switch {
	case msg == "":
	case strings.ContainsAny(s, "@?#"): // a part of it may be a password that is in the wrong place
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
		return "", "has a user in it; to a relay we are who signs with the key"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(s, "#"):
		return "", "has more than a path behind the host"
	}
	if _, msg := parseHost(u.Hostname()); msg != "" {
		return "", "is a URL without a host that could be one"
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", "has a port that is none"
		}
	}
	return normalRelay(u), ""
}

// normalRelay writes a URL without what makes no difference, as package nostr
// does when it compares them.
func normalRelay(u *url.URL) string {
	c := *u
	c.Host = strings.ToLower(c.Host)
	c.Host = strings.TrimSuffix(c.Host, map[string]string{"ws": ":80", "wss": ":443"}[c.Scheme])
	c.Host = strings.TrimSuffix(c.Host, ":")
	c.Path, c.RawPath = strings.TrimRight(c.Path, "/"), ""
	return c.String()
}
