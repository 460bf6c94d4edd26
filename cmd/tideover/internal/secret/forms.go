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
	minLine   = 8 // a shorter line of a secret with several is not replaced by itself
	minBase64 = 6 // a shorter piece of base64 is too likely to be something else
)

// forms returns the ways in which a secret is likely to stand in a text: as it
// is, and as an encoder on the way has left it.
func forms(value string) (list []string) {
	list = append(list, value)
	if len(value) < minInside {
		return list
	}
	if strings.Contains(value, "\n") { // a key file, printed with an indent or by line
		for line := range strings.Lines(value) {
			if line = strings.TrimSpace(line); len(line) >= minLine && !strings.HasPrefix(line, "-----") {
				list = append(list, forms(line)...)
			}
		}
	}
	list = append(list, url.QueryEscape(value), url.PathEscape(value), html.EscapeString(value))
	list = append(list, quoted(value)...)
	list = append(list, base64Forms(value)...)
	slices.Sort(list)
	return slices.Compact(list)
}

// quoted returns the secret as JSON and Go write it inside their quotes.
func quoted(value string) []string {
	var plain strings.Builder
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value) // a string always has a JSON form
	escaped, _ := json.Marshal(value)
	inside := func(s string) string { return s[1 : len(s)-1] }
	return []string{
		inside(strings.TrimSuffix(plain.String(), "\n")), inside(string(escaped)),
		inside(strconv.Quote(value)), inside(strconv.QuoteToASCII(value)),
	}
}

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
