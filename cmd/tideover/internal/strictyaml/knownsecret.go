package strictyaml

import (
	"strings"

	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/secret"
)

// knownForms are the forms of secrets that are recognised by their text alone, for any name of
// the setting, such as API keys with a known prefix.
var knownForms = []knownForm{
	{"sk-", lazyregexp.New(`(?:^|[^A-Za-z0-9_-])(sk-[A-Za-z0-9_-]{16,})`), func(s string) bool { return longWord.MatchString(s[3:]) || digit(s) && upper(s) }},
	{"k_", lazyregexp.New(`(?:^|[^A-Za-z0-9_])([sr]k_(?:live|test)_[A-Za-z0-9]{16,})`), nil},
	{"xox", lazyregexp.New(`(?:^|[^A-Za-z0-9_-])(xox[a-z]-[A-Za-z0-9-]{16,})`), nil},
	{"xapp-", lazyregexp.New(`(?:^|[^A-Za-z0-9_-])(xapp-[A-Za-z0-9-]{16,})`), nil},
	{"gh", lazyregexp.New(`(?:^|[^A-Za-z0-9_])(gh[pousr]_[A-Za-z0-9_]{16,})`), nil},
	{"github_pat_", lazyregexp.New(`(?:^|[^A-Za-z0-9_])(github_pat_[A-Za-z0-9_]{16,})`), nil},
	{"glpat-", lazyregexp.New(`(?:^|[^A-Za-z0-9_-])(glpat-[A-Za-z0-9_-]{16,})`), nil},
	{"tk_", lazyregexp.New(`(?:^|[^A-Za-z0-9_])(tk_[A-Za-z0-9]{16,})`), digit}, // token of ntfy; tk_focusFollowsMouse, a variable of Tk, is not a token
	{"nsec1", lazyregexp.New(`(?i)(?:^|[^a-z0-9])(nsec1[02-9ac-hj-np-z]{58})(?:$|[^a-z0-9])`), nil},
	{"ia", lazyregexp.New(`(?:^|[^A-Za-z0-9])(A[KS]IA[A-Z0-9]{16})(?:$|[^A-Za-z0-9])`), nil},
	{"bearer", lazyregexp.New(`(?i)\bbearer\s+([a-z0-9._~+/=-]{20,})`), nil},
	{"discord", lazyregexp.New(`(?i)\bdiscord(?:app)?\.com/api/(?:v[0-9]+/)?webhooks/[0-9]+/([a-z0-9_-]{8,})`), nil},
	{"api.telegram.org", lazyregexp.New(`(?i)\bapi\.telegram\.org/(?:file/)?bot([0-9]+:[a-z0-9_-]{8,})`), nil},
	{"hooks.slack.com", lazyregexp.New(`(?i)\bhooks\.slack\.com/(?:(?:services|triggers)/(?:[^/\s$]+/){2}|workflows/(?:[^/\s$]+/){3})([a-z0-9]{8,})`), nil},
}

// knownForm is the form of one kind of secrets.
type knownForm struct {
	part   string             // lower-case text that all such secrets contain; a quick check before form
	form   *lazyregexp.Regexp // its first group is the secret
	random func(string) bool  // reports whether a match is a secret and not a word or a path; nil means that every match is
}

// find returns the start and the end of each secret in the text; lower is the text in
// lower case.
func (k *knownForm) find(text, lower string) (found [][]int) {
	if !strings.Contains(lower, k.part) {
		return nil
	}
	for _, m := range k.form.FindAllStringSubmatchIndex(text, -1) {
		if k.random == nil || k.random(text[m[2]:m[3]]) {
			found = append(found, m[2:4])
		}
	}
	return found
}

// longWord matches the random part of a key, but not short words that hyphens separate.
var longWord = lazyregexp.New(`[A-Za-z0-9]{12}`)

func digit(s string) bool { return strings.ContainsAny(s, "0123456789") }
func upper(s string) bool { return strings.ToLower(s) != s }

// KnownSecret returns a secret of a known form that the text contains.
func KnownSecret(text string) (literal string, found bool) {
	lower := strings.ToLower(text)
	for _, k := range knownForms {
		if at := k.find(text, lower); len(at) > 0 {
			return text[at[0][0]:at[0][1]], true
		}
	}
	return "", false
}

// MaskKnown masks all secrets of known forms in the text.
func MaskKnown(text string) string {
	lower := strings.ToLower(text) // stays valid below: a mask does not add a part of a known form
	for _, k := range knownForms {
		var b strings.Builder
		done := 0
		for _, at := range k.find(text, lower) {
			b.WriteString(text[done:at[0]] + secret.Mask)
			done = at[1]
		}
		if done > 0 {
			text = b.String() + text[done:]
		}
	}
	return text
}
