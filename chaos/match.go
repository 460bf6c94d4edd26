package chaos

import (
	"fmt"
	"net/http"
	"strings"
)

// parseMatch reads a match: *, or a method, the beginning of
// a path and a header, each of them optional.
func parseMatch(text string) (m Match, err error) {
	list, err := words(text)
	if err != nil {
		return m, err
	}
	bad := func(word string) error {
		return fmt.Errorf("%q does not tell which requests are meant; want * or a method, a path and a header, as in POST /v1/messages header(x-tenant=a)", word)
	}
	if len(list) == 0 {
		return m, bad(text)
	}
	if len(list) == 1 && list[0] == "*" {
		return m, nil
	}
	for _, word := range list {
		var to *string
		value := word
		args, isHeader := strings.CutPrefix(word, "header(")
		switch {
		case strings.HasPrefix(word, "/"):
			to = &m.Path
		case isHeader && strings.HasSuffix(args, ")"):
			to = &m.Header
			name, want, given := strings.Cut(strings.TrimSuffix(args, ")"), "=")
			value = strings.ToLower(name)
			if given {
				if m.Value, err = unquote(want); err != nil {
					return m, fmt.Errorf("%q: %w", word, err)
				}
			}
		case strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "":
			to = &m.Method
		default:
			return m, bad(word)
		}
		if *to != "" {
			return m, fmt.Errorf("%q can't be combined with %q", word, *to)
		}
		*to = value
	}
	return m, m.check()
}

// check returns the first problem of the match.
func (m Match) check() error {
	if strings.ContainsFunc(m.Path, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"();`, r) }) {
		return fmt.Errorf("%q is not a path such as /v1/messages", m.Path)
	}
	if m.Header != "" && !headerForm.MatchString(m.Header) {
		return fmt.Errorf("%q is not the name of a header", m.Header)
	}
	if m.Header == "" && m.Value != "" {
		return fmt.Errorf("value %q requires the name of a header", m.Value)
	}
	return nil
}

// String returns the text form of the match.
func (m Match) String() string {
	var list []string
	for _, part := range []string{m.Method, m.Path} {
		if part != "" {
			list = append(list, part)
		}
	}
	switch {
	case m.Value != "":
		list = append(list, "header("+m.Header+"="+enquote(m.Value)+")")
	case m.Header != "":
		list = append(list, "header("+m.Header+")")
	}
	if len(list) == 0 {
		return "*"
	}
	return strings.Join(list, " ")
}

// fits reports whether the request matches.
func (m Match) fits(method, path string, header http.Header) bool {
	if m.Method != "" && m.Method != method || !strings.HasPrefix(path, m.Path) {
		return false
	}
	values := header.Values(m.Header)
	return m.Header == "" || len(values) > 0 && (m.Value == "" || values[0] == m.Value)
}

// covers reports whether m matches every request that other matches.
func (m Match) covers(other Match) bool {
	return (m.Method == "" || m.Method == other.Method) && strings.HasPrefix(other.Path, m.Path) &&
		(m.Header == "" || m.Header == other.Header && (m.Value == "" || m.Value == other.Value))
}
