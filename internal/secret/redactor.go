package secret

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// Redactor replaces secrets by "***" in text. It recognises each secret
// unchanged, in base64 (also inside a longer text), URL-encoded, and escaped as
// in JSON, Go and HTML.
//
// A secret shorter than four bytes is only replaced where it stands alone,
// between characters that are neither letters nor digits nor underscores;
// otherwise the secret "a" would make every text unreadable. Secrets that
// overlap are replaced together. A value that consists of asterisks is ignored.
//
// The zero Redactor is ready for use. It is safe for concurrent use.
type Redactor struct {
	mu    sync.Mutex // held while the table is replaced
	table atomic.Pointer[table]
}

// table has the forms of all secrets. It never changes: Add replaces it.
type table struct {
	values map[string][]string // the forms of each secret
	first  [256][]string       // forms by their first byte, the longest first
}

var noSecrets table

// Add adds secrets. Empty ones are ignored.
func (r *Redactor) Add(values ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := cmp.Or(r.table.Load(), &noSecrets)
	values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return old.values[v] != nil || strings.Trim(v, "*") == "" })
	if len(values) == 0 {
		return // the usual case: the secret is known already
	}
	next := &table{values: make(map[string][]string, len(old.values)+len(values))}
	maps.Copy(next.values, old.values)
	for _, v := range values {
		next.values[v] = forms(v)
	}
	for _, list := range next.values {
		for _, form := range list {
			next.first[form[0]] = append(next.first[form[0]], form)
		}
	}
	for i := range next.first {
		slices.SortFunc(next.first[i], func(a, b string) int { return len(b) - len(a) })
		next.first[i] = slices.Compact(next.first[i])
	}
	r.table.Store(next)
}

// String returns the text without secrets.
func (r *Redactor) String(text string) string {
	t := r.table.Load()
	if t == nil {
		return text
	}
	return string(new(scan).run(t, nil, []byte(text), true))
}

// Bytes returns the text without secrets, which may be the text itself.
func (r *Redactor) Bytes(text []byte) []byte {
	t := r.table.Load()
	if t == nil {
		return text
	}
	return new(scan).run(t, nil, text, true)
}

// scan is the state of one text, which may come in pieces.
type scan struct {
	rest    []byte // end of the last piece: it may be the start of a secret
	covered int    // bytes at the start of rest that are replaced already
	before  byte   // the byte before rest; 0 at the start of the text
	inside  bool   // that byte was replaced; a secret right after it is part of the same mask
}

// run appends the piece without secrets to dst. Unless the piece is the last,
// it holds back what may be the start of a secret.
func (s *scan) run(t *table, dst, piece []byte, last bool) []byte {
	text := append(s.rest, piece...)
	end := s.covered // secrets found so far reach to here
	i := 0
	for ; i < len(text); i++ {
		n, open := t.match(text, i, s.before, last)
		if open {
			break
		}
		end = max(end, i+n)
		switch {
		case i >= end:
			dst = append(dst, text[i])
			s.inside = false
		case !s.inside:
			dst = append(dst, Mask...)
			s.inside = true
		}
		s.before = text[i]
	}
	s.covered = max(0, end-i)
	s.rest = append(s.rest[:0], text[i:]...)
	return dst
}

// match returns the length of the longest secret that starts at i. open means
// that more text is needed to decide.
func (t *table) match(text []byte, i int, before byte, last bool) (n int, open bool) {
	for _, form := range t.first[text[i]] {
		tail := text[i:]
		switch {
		case len(tail) < len(form):
			if !last && form[:len(tail)] == string(tail) {
				return 0, true
			}
		case string(tail[:len(form)]) != form:
		case len(form) >= minInside:
			return len(form), false // the forms are sorted: no longer one matches
		case wordByte(before):
		case len(tail) == len(form):
			if !last {
				return 0, true
			}
			return len(form), false
		case !wordByte(tail[len(form)]):
			return len(form), false
		}
	}
	return 0, false
}

func wordByte(b byte) bool {
	return b == '_' || b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'z' || b >= 0x80
}

var quotation = lazyregexp.New(`"(?:[^"\\]|\\.)*("|$)`)

// Unquoted replaces everything in double quotes, as written by %q, by "…". It
// is for errors that quote what a client sent, which may be a secret.
func Unquoted(text string) string { return quotation.ReplaceAllString(text, `"…"`) }
