package view

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"

	"github.com/tideover/tideover/internal/textfmt"
)

// Bounds of what is indexed of one run. Longer words are cut, so that a piece of
// base64 is found by its beginning; text beyond the other bounds is not found.
const (
	maxText  = 64 << 10
	maxWords = 2000
	maxWord  = 40
	minStem  = 3 // shorter words are searched for as they are, longer ones as a beginning
	maxQuery = 16
)

// words splits a text as the index does: into runs of letters and digits, in
// lower case. Bytes that are not UTF-8 separate words, as does NUL.
func words(text string, f func(string) bool) {
	for word := range strings.FieldsFuncSeq(text[:min(len(text), maxText)], separates) {
		if !f(textfmt.Truncate(strings.ToLower(word), maxWord)) {
			return
		}
	}
}

func separates(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r)
}

// document returns the words of a run, each once, joined with spaces.
func document(r *Run) string {
	var b strings.Builder
	seen := make(map[string]struct{}, 64)
	add := func(w string) bool {
		if _, ok := seen[w]; !ok {
			seen[w] = struct{}{}
			b.WriteString(w)
			b.WriteByte(' ')
		}
		return len(seen) < maxWords
	}
	for _, text := range [...]string{r.Key, r.Workflow, r.Error, inputText(r.Input)} {
		words(text, add)
	}
	return b.String()
}

// inputText returns the text of a payload. One that has escapes is decoded, as
// people search for what they see.
func inputText(input []byte) string {
	text := string(input[:min(len(input), maxText)])
	if strings.IndexByte(text, '\\') < 0 || len(input) > maxText {
		return text
	}
	var v any
	if json.Unmarshal(input, &v) != nil {
		return text
	}
	var b strings.Builder
	collect(&b, v)
	return b.String()
}

func collect(b *strings.Builder, v any) {
	switch v := v.(type) {
	case string:
		b.WriteString(v)
	case float64:
		b.WriteString(strconv.FormatFloat(v, 'f', -1, 64))
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case []any:
		for _, e := range v {
			collect(b, e)
		}
	case map[string]any:
		for k, e := range v {
			b.WriteString(k)
			b.WriteByte(' ')
			collect(b, e)
		}
	}
	b.WriteByte(' ')
}

// query returns the words of a search, each quoted and all required, or "" if it
// has none. Words have no quotes in them, so it is always well formed.
func query(search string, stems bool) string {
	var list []string
	words(search, func(w string) bool {
		stem := ""
		if stems && utf8.RuneCountInString(w) >= minStem {
			stem = "*"
		}
		list = append(list, `"`+w+`"`+stem)
		return len(list) < maxQuery
	})
	return strings.Join(list, " ")
}

// indexStep is how many runs are indexed in one transaction: about ten
// milliseconds, for which a writer may have to wait.
const indexStep = 256

// maxBehind is how far SearchBehind counts.
const maxBehind = 10_000

// index goes on behind the last indexed place, and then does those before it
// that have changed. Both are in order of place, which FTS5 needs to gather
// words instead of writing each run's to disk.
func (w *writer) index(most int) (int, error) {
	places, err := w.places("SELECT place FROM runs WHERE place>? ORDER BY place LIMIT ?", w.indexed, int64(most))
	if err != nil {
		return 0, err
	}
	for _, p := range places {
		if err := w.addWords(p); err != nil {
			return 0, err
		}
	}
	if n := len(places); n > 0 {
		w.indexed = places[n-1]
		if err := exec(w.conn, "UPDATE meta SET value=?2 WHERE key=?1", metaIndexed, w.indexed); err != nil {
			return 0, err
		}
	}
	stale, err := w.places("SELECT place FROM stale ORDER BY place LIMIT ?", int64(most-len(places)))
	if err != nil {
		return 0, err
	}
	for _, q := range [...]string{"DELETE FROM words WHERE rowid=?", "DELETE FROM stale WHERE place=?"} {
		for _, p := range stale {
			if err := exec(w.conn, q, p); err != nil {
				return 0, err
			}
		}
	}
	for _, p := range stale {
		if err := w.addWords(p); err != nil {
			return 0, err
		}
	}
	return len(places) + len(stale), nil
}

func (w *writer) places(query string, args ...int64) (places []int64, err error) {
	err = each(w.conn, query, func(s *sqlite.Stmt) error {
		places = append(places, s.ColumnInt64(0))
		return nil
	}, args...)
	return places, err
}

func (w *writer) addWords(place int64) error {
	r, ok, err := w.names.at(w.conn, place)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: no run at place %d", ErrDamaged, place)
	}
	return exec(w.conn, "INSERT INTO words(rowid, text) VALUES(?, ?)", place, document(&r))
}

// behind counts the runs that are not indexed, up to maxBehind.
func behind(c *sqlite.Conn) (int, error) {
	n, err := queryInt(c, fmt.Sprintf(`SELECT
		(SELECT count(*) FROM (SELECT 1 FROM runs WHERE place>(SELECT value FROM meta WHERE key=%d) LIMIT %d)) +
		(SELECT count(*) FROM (SELECT 1 FROM stale LIMIT %d))`, metaIndexed, maxBehind, maxBehind))
	return int(min(n, maxBehind)), err
}
