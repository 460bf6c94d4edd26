package secret

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tideover/tideover/internal/plainjson"
)

const (
	minInside = 4 // a secret with fewer bytes is only replaced where it is a word of its own
	minLine   = 8 // a part of a secret with fewer bytes is only replaced as part of the whole
	minBase64 = 6 // a piece of base64 with fewer characters is likely to be something else
)

// forms returns the forms in which a secret is likely to occur in a text:
// unchanged, and as encoders write it.
func forms(value string) (list []string) {
	list = append(list, value)
	if len(value) < minInside {
		return list
	}
	for _, part := range parts(value) {
		list = append(list, forms(part)...)
	}
	list = append(list, percentForms(value)...)
	list = append(list, htmlForms(value)...)
	list = append(list, quoted(value)...)
	list = append(list, base64Forms(value)...)
	slices.Sort(list)
	return slices.Compact(list)
}

// parts returns the parts of a secret that are secrets themselves: the lines of
// a key file, which may be printed with an indent or line by line; the token
// after a scheme; and the secret parts of a URL, of which a server may repeat
// only the path, and net/http everything except the password.
func parts(value string) (list []string) {
	if strings.Contains(value, "\n") {
		for line := range strings.Lines(value) {
			if line = strings.TrimSpace(line); len(line) >= minLine && !strings.HasPrefix(line, "-----") {
				list = append(list, line)
			}
		}
		return list
	}
	if words := strings.Fields(value); len(words) > 1 {
		list = words
	}
	var password string
	if u, err := url.Parse(value); err == nil && u.Scheme != "" && u.Host != "" {
		list = append(append(list, strings.Split(u.Path, "/")...), u.User.Username())
		for _, values := range u.Query() {
			list = append(list, values...)
		}
		password, _ = u.User.Password()
	}
	list = slices.DeleteFunc(list, func(s string) bool { return len(s) < minLine || isWord(s) })
	if password != "" {
		list = append(list, password)
	}
	return list
}

// isWord reports whether a part is too ordinary to be a secret: a number, or a
// word such as "services", "my-topic" or "sendMessage". Secrets contain digits
// among letters, or are long and contain capitals.
func isWord(s string) bool {
	const long = 16
	digits := strings.ContainsAny(s, "0123456789")
	switch {
	case strings.Trim(s, "0123456789") == "":
		return true
	case len(s) < long:
		return !digits
	default:
		return !digits && strings.ToLower(s) == s
	}
}

// percentForms returns the secret as it occurs in URLs. Which characters are
// not escaped depends on the part of the URL and on the program that wrote it.
func percentForms(value string) (list []string) {
	for _, digits := range []string{"0123456789ABCDEF", "0123456789abcdef"} {
		for _, kept := range []string{
			"",          // a value of the query
			"/",         // Python's quote
			"$&+=:@",    // a segment of a path
			"$&+=:@/;,", // a path
			"$&+=;,",    // a user
			"!*'()",     // JavaScript's encodeURIComponent
		} {
			list = append(list, percent(value, kept, digits))
		}
		list = append(list, strings.ReplaceAll(percent(value, " ", digits), " ", "+")) // a form
	}
	return list
}

// percent escapes everything except letters, digits, -._~ and the kept
// characters as %XX.
func percent(value, kept, digits string) string {
	var b strings.Builder
	for _, c := range []byte(value) {
		if wordByte(c) && c < 0x80 || strings.IndexByte("-.~", c) >= 0 || strings.IndexByte(kept, c) >= 0 {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

// htmlForms returns the secret as it occurs in HTML and XML.
func htmlForms(value string) (list []string) {
	plain := html.EscapeString(value)
	for _, quotes := range [][2]string{
		{"&#34;", "&#39;"}, {"&quot;", "&#39;"}, {"&quot;", "&#x27;"}, {"&quot;", "&#039;"}, {"&quot;", "&apos;"}, {"&quot;", "'"}, {`"`, "'"},
	} {
		list = append(list, strings.NewReplacer("&#34;", quotes[0], "&#39;", quotes[1]).Replace(plain))
	}
	return append(list, strings.ReplaceAll(plain, "+", "&#43;")) // of Go's templates
}

// quoted returns the secret as JSON and Go write it inside their quotes.
func quoted(value string) []string {
	text, _ := plainjson.Marshal(value) // a string always has a JSON form
	forHTML, _ := json.Marshal(value)
	inside := func(s string) string { return s[1 : len(s)-1] }
	plain, escaped := inside(string(text)), inside(string(forHTML))
	return []string{
		plain, escaped, inside(strconv.Quote(value)), inside(strconv.QuoteToASCII(value)),
		strings.ReplaceAll(plain, "/", `\/`), strings.ReplaceAll(escaped, "/", `\/`), // of PHP, and others
		dotnet.Replace(plain),
	}
}

// dotnet replaces the escapes of JSON by those that .NET writes.
var dotnet = strings.NewReplacer(`\"`, `\u0022`, `\\`, `\\`, "<", `\u003C`, ">", `\u003E`, "&", `\u0026`, "'", `\u0027`, "+", `\u002B`, "`", `\u0060`)

// base64Forms returns the secret in base64, alone and as part of a longer text
// such as user:secret. Three bytes are four characters, so there are three
// alignments; the characters at the ends that also depend on the neighbours are
// omitted.
func base64Forms(value string) (list []string) {
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			text := enc.EncodeToString([]byte(strings.Repeat("\x00", before) + value))
			first := (before*8 + 5) / 6 // leading characters that also depend on the bytes before the secret
			last := (before + len(value)) * 8 / 6
			if last-first >= minBase64 {
				list = append(list, text[first:last])
			}
		}
	}
	return list
}
