package secret

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	minInside = 4 // a shorter secret is only replaced where it stands alone
	minLine   = 8 // a shorter part of a secret is not replaced by itself
	minBase64 = 6 // a shorter piece of base64 is too likely to be something else
)

// forms returns the ways in which a secret is likely to stand in a text: as it
// is, and as an encoder on the way has left it.
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

// parts returns what of a secret is one by itself: the lines of a key file, which is
// printed with an indent or by line, the token behind a scheme, and what is secret in
// a URL, of which a server repeats the path alone, and net/http all but the password.
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

// isWord reports whether a part is too ordinary to be a secret: a number, or a word
// such as "services", "my-topic" or "sendMessage". Secrets have digits among their
// letters, or are long and have capitals in them.
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

// percentForms returns the secret as it stands in a URL. Which characters are left
// as they are there depends on the part of the URL and on who wrote it.
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

// percent writes all but letters, digits, -._~ and what is kept as %XX.
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

// htmlForms returns the secret as it stands in HTML and XML.
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
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value) // a string always has a JSON form
	escaped, _ := json.Marshal(value)
	inside := func(s string) string { return s[1 : len(s)-1] }
	plain := inside(strings.TrimSuffix(text.String(), "\n"))
	return []string{
		plain, inside(string(escaped)), inside(strconv.Quote(value)), inside(strconv.QuoteToASCII(value)),
		strings.ReplaceAll(plain, "/", `\/`), strings.ReplaceAll(inside(string(escaped)), "/", `\/`), // of PHP, and others
		dotnet.Replace(plain),
	}
}

// dotnet makes of JSON what .NET makes of it.
var dotnet = strings.NewReplacer(`\"`, `\u0022`, `\\`, `\\`, "<", `\u003C`, ">", `\u003E`, "&", `\u0026`, "'", `\u0027`, "+", `\u002B`, "`", `\u0060`)

// base64Forms returns the secret in base64, alone and as a part of something
// longer, such as user:secret. Three bytes are four characters, so there are
// three ways for it to lie; the characters at the ends that depend on its
// neighbours are left out.
func base64Forms(value string) (list []string) {
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			text := enc.EncodeToString([]byte(strings.Repeat("\x00", before) + value))
			first := (before*8 + 5) / 6 // characters with bits of what is before
			last := (before + len(value)) * 8 / 6
			if last-first >= minBase64 {
				list = append(list, text[first:last])
			}
		}
	}
	return list
}
