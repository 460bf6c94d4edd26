package secret

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// The names of credentials, in lower case. Whether a name marks a credential
// depends on the place: "code" does in a query and not in a header.
var (
	// headerNames are whole names of headers, headerParts are parts of them.
	headerNames = bytes.Fields([]byte(
		"authentication ocp-apim-subscription-key x-access-key x-auth x-auth-key x-functions-key"))
	headerParts = bytes.Fields([]byte(
		"api-key api_key apikey authorization cookie credential jwt passwd password private-key secret session"))

	// keyQueries are names of query parameters in which APIs take a key.
	keyQueries = wordSet("access_token api-key api_key apikey auth_token key subscription-key")

	// queries are canonical names of query parameters; see IsQuery.
	queries = wordSet(`
		accesskey accesskeyid accesstoken accountkey apikey apisecret apitoken appid appkey appsecret assertion
		auth authentication authkey authorization authtoken awsaccesskeyid bearer bearertoken clientassertion
		clientid clientsecret code consumerkey consumersecret cookie credential credentials csrftoken dpop
		functionskey googleaccessid hapikey hmac idtoken jwt key keypairid login oauth oauthconsumerkey
		oauthsignature oauthtoken otp pass passphrase passwd password pin privatekey privatetoken pw pwd
		refreshtoken samlresponse secret secretkey securitytoken sess session sessionid sessiontoken sharedkey
		sid sig signature subscriptionkey ticket token totp username usertoken virtualkey xapikey xauthtoken
		xsrftoken`)

	// settingWords are the last words of names of settings.
	settingWords = wordSet("apikey authorization cookie credential credentials passphrase passwd password pwd secret token")

	// anyParts are parts of names, anyName is a whole name, of headers and query
	// parameters that may carry a credential; see MaybeName.
	anyParts = strings.Fields("auth cookie credential key passwd password secret session signature token")
)

const anyName = "sig"

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		set[word] = true
	}
	return set
}

// queryPrefixes are the beginnings of canonical names of query parameters with
// signatures and credentials of cloud providers.
var queryPrefixes = []string{"xamz", "xgoog"}

// keyWords are the words before "key" in the name of a setting that mark a secret, as in
// API_KEY. A part of a word counts, too.
const keyWords = "api access secret private auth signing encryption"

// IsHeader reports whether a header is likely to carry a credential of its sender. In
// doubt it returns true: a header that is removed by mistake makes a request fail
// visibly, but a credential that is not recognised is sent to another party. IsHeader
// allocates nothing for names up to 64 bytes.
func IsHeader(name string) bool {
	var room [64]byte
	lower := appendLower(room[:0], name)
	return slices.ContainsFunc(headerNames, func(name []byte) bool { return bytes.Equal(lower, name) }) ||
		slices.ContainsFunc(headerParts, func(part []byte) bool { return bytes.Contains(lower, part) }) || hasToken(lower)
}

// IsKeyQuery reports whether APIs accept a key in the query parameter of that
// name.
func IsKeyQuery(name string) bool { return keyQueries[strings.ToLower(name)] }

// IsQuery reports whether a query parameter carries a credential. The name is
// canonical: in lower case, without hyphens, underscores, dots and spaces.
func IsQuery(name string) bool {
	return queries[name] || slices.ContainsFunc(queryPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
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
// returns true for too many names rather than too few: use it for texts that are printed,
// not to remove headers from requests.
func MaybeName(name string) bool {
	name = strings.ToLower(name)
	if name == "idempotency-key" {
		return false
	}
	return name == anyName || slices.ContainsFunc(anyParts, func(part string) bool { return strings.Contains(name, part) })
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

// hasToken reports whether a part of the name ends in "token", as in x-auth-token
// and x-accesstoken. The plural "tokens" is a unit that models count.
func hasToken(lower []byte) bool {
	start, harmless := 0, false
	for i := 0; i <= len(lower); i++ {
		if i < len(lower) && lower[i] != '-' && lower[i] != '_' {
			continue
		}
		word := lower[start:i]
		if bytes.HasSuffix(word, []byte("token")) && !harmless {
			return true
		}
		harmless, start = isHarmless(word), i+1
	}
	return false
}

// isHarmless reports whether a "token" after this word is no secret, as in page-token or
// idempotency-token.
func isHarmless(word []byte) bool {
	switch string(word) {
	case "page", "continuation", "idempotency":
		return true
	}
	return false
}
