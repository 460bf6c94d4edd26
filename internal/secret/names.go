package secret

import (
	"strings"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// use says where a name marks a credential.
type use uint8

const (
	header     use = 1 << iota // the whole name of a header
	headerPart                 // a part of the name of a header
	keyQuery                   // the whole name of a query parameter in which APIs take a key
	query                      // the whole canonical name of a query parameter; see IsQuery
	setting                    // the last word of the name of a setting
	anyPart                    // a part of the name of a header or a query parameter; see MaybeName
	anyWhole                   // the whole name of one
)

// names lists the names of credentials, in lower case. Whether a name marks a
// credential depends on the place: "code" does in a query and not in a header.
var names = []struct {
	name string
	uses use
}{
	{"access_token", keyQuery},
	{"accesskey", query},
	{"accesskeyid", query},
	{"accesstoken", query},
	{"accountkey", query},
	{"api-key", headerPart | keyQuery},
	{"api_key", headerPart | keyQuery},
	{"apikey", headerPart | keyQuery | query | setting},
	{"apisecret", query},
	{"apitoken", query},
	{"appid", query},
	{"appkey", query},
	{"appsecret", query},
	{"assertion", query},
	{"auth", query | anyPart},
	{"auth_token", keyQuery},
	{"authentication", header | query},
	{"authkey", query},
	{"authorization", headerPart | query | setting},
	{"authtoken", query},
	{"awsaccesskeyid", query},
	{"bearer", query},
	{"bearertoken", query},
	{"clientassertion", query},
	{"clientid", query},
	{"clientsecret", query},
	{"code", query},
	{"consumerkey", query},
	{"consumersecret", query},
	{"cookie", headerPart | query | setting | anyPart},
	{"credential", headerPart | query | setting | anyPart},
	{"credentials", query | setting},
	{"csrftoken", query},
	{"dpop", query},
	{"functionskey", query},
	{"googleaccessid", query},
	{"hapikey", query},
	{"hmac", query},
	{"idtoken", query},
	{"jwt", headerPart | query},
	{"key", keyQuery | query | anyPart},
	{"keypairid", query},
	{"login", query},
	{"oauth", query},
	{"oauthconsumerkey", query},
	{"oauthsignature", query},
	{"oauthtoken", query},
	{"ocp-apim-subscription-key", header},
	{"otp", query},
	{"pass", query},
	{"passphrase", query | setting},
	{"passwd", headerPart | query | setting | anyPart},
	{"password", headerPart | query | setting | anyPart},
	{"pin", query},
	{"private-key", headerPart},
	{"privatekey", query},
	{"privatetoken", query},
	{"pw", query},
	{"pwd", query | setting},
	{"refreshtoken", query},
	{"samlresponse", query},
	{"secret", headerPart | query | setting | anyPart},
	{"secretkey", query},
	{"securitytoken", query},
	{"sess", query},
	{"session", headerPart | query | anyPart},
	{"sessionid", query},
	{"sessiontoken", query},
	{"sharedkey", query},
	{"sid", query},
	{"sig", query | anyWhole},
	{"signature", query | anyPart},
	{"subscription-key", keyQuery},
	{"subscriptionkey", query},
	{"ticket", query},
	{"token", query | setting | anyPart}, // in headers see hasToken
	{"totp", query},
	{"username", query},
	{"usertoken", query},
	{"virtualkey", query},
	{"x-access-key", header},
	{"x-auth", header},
	{"x-auth-key", header},
	{"x-functions-key", header},
	{"xapikey", query},
	{"xauthtoken", query},
	{"xsrftoken", query},
}

// The lists for each use, precomputed because they are needed for every
// request.
var (
	headerNames  = namesOf(header)
	headerParts  = namesOf(headerPart)
	keyQueries   = setOf(keyQuery)
	queries      = setOf(query)
	settingWords = setOf(setting)
	anyParts     = namesOf(anyPart)
	anyNames     = setOf(anyWhole)
)

func namesOf(u use) (list []string) {
	for _, n := range names {
		if n.uses&u != 0 {
			list = append(list, n.name)
		}
	}
	return list
}

func setOf(u use) map[string]bool {
	set := map[string]bool{}
	for _, name := range namesOf(u) {
		set[name] = true
	}
	return set
}

// queryPrefixes are the beginnings of canonical names of query parameters with
// signatures and credentials of cloud providers.
var queryPrefixes = []string{"xamz", "xgoog"}

// keyWords are the words before "key" that make the name of a setting that of a
// secret. A part of a word counts, too.
const keyWords = "api access secret private auth signing encryption"

// harmlessTokens are the words before "token" in headers whose token is no secret:
// the place in a list, the name of a request.
var harmlessTokens = []string{"page", "continuation", "idempotency"}

// IsHeader reports whether a header is likely to identify its sender. A header that
// is taken for a credential by mistake makes a request fail visibly; a credential
// that is not found is sent to another party. IsHeader allocates nothing for
// names up to 64 bytes.
func IsHeader(name string) bool {
	var room [64]byte
	lower := appendLower(room[:0], name)
	for _, known := range headerNames { //nolint:modernize // slices.Contains would need a string of its own
		if string(lower) == known {
			return true
		}
	}
	for _, part := range headerParts {
		if contains(lower, part) {
			return true
		}
	}
	return hasToken(lower)
}

// IsKeyQuery reports whether APIs accept a key in the query parameter of that
// name.
func IsKeyQuery(name string) bool { return keyQueries[strings.ToLower(name)] }

// IsQuery reports whether a query parameter carries a credential. The name is
// canonical: in lower case, without hyphens, underscores, dots and spaces.
func IsQuery(name string) bool {
	for _, prefix := range queryPrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return queries[name]
}

var wordBreak = lazyregexp.New(`[^a-zA-Z0-9]+|([a-z0-9])([A-Z])`)

// IsSetting reports whether the value of a setting, a variable, a header or a query
// parameter of a configuration is likely to be a secret. The last word of the name
// decides, as in API_TOKEN, x-api-key or dbPassword.
func IsSetting(name string) bool {
	words := strings.Fields(strings.ToLower(wordBreak.ReplaceAllString(name, "$1 $2")))
	if len(words) == 0 {
		return false
	}
	last := words[len(words)-1]
	if last == "key" {
		return len(words) > 1 && strings.Contains(keyWords, words[len(words)-2])
	}
	return settingWords[last]
}

// MaybeName reports whether a header or a query parameter may carry a credential. It
// errs on the side of masking: it is for what is printed, not for what is sent.
func MaybeName(name string) bool {
	name = strings.ToLower(name)
	if name == "idempotency-key" {
		return false
	}
	for _, part := range anyParts {
		if strings.Contains(name, part) {
			return true
		}
	}
	return anyNames[name]
}

func appendLower(b []byte, s string) []byte {
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}

// contains reports whether the part is in the text.
func contains(text []byte, part string) bool {
	for i := 0; i+len(part) <= len(text); i++ {
		if string(text[i:i+len(part)]) == part {
			return true
		}
	}
	return false
}

// hasToken reports whether a part of the name ends in "token", as in x-auth-token
// and x-accesstoken. The plural "tokens" is a unit that models count.
func hasToken(lower []byte) bool {
	const token = "token"
	start, harmless := 0, false
	for i := 0; i <= len(lower); i++ {
		if i < len(lower) && lower[i] != '-' && lower[i] != '_' {
			continue
		}
		word := lower[start:i]
		if len(word) >= len(token) && string(word[len(word)-len(token):]) == token && !harmless {
			return true
		}
		harmless, start = isHarmless(word), i+1
	}
	return false
}

// isHarmless reports whether the token behind the word is no secret.
func isHarmless(word []byte) bool {
	for _, w := range harmlessTokens { //nolint:modernize // slices.Contains would need a string of its own
		if string(word) == w {
			return true
		}
	}
	return false
}
