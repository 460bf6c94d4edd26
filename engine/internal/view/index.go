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

// Limits of the index. Long words are cut, so that a base64 string is found by its beginning.
// Text beyond the other limits is not indexed.
const (
	maxText  = 64 << 10 // bytes of a text that are indexed
	maxWords = 2000     // different words of a run
	maxWord  = 40       // bytes of a word
	minStem  = 3        // characters of a word that may match the beginning of a longer word
	maxQuery = 16       // words of a search
)

// words calls f with each word of a text: a sequence of letters and digits, in lower case. Other
// characters, and bytes that are not UTF-8, separate words. It stops when f returns false.
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

// document returns the words of a run, each once, joined with spaces. It uses the memory of the
// map for these words.
func document(r *Run, seen map[string]struct{}) string {
	input := inputText(r.Input)
	var b strings.Builder
	b.Grow(len(r.Key) + len(r.Workflow) + len(r.Error) + len(input) + 4)
	clear(seen)
	add := func(w string) bool {
		if _, ok := seen[w]; !ok {
			seen[w] = struct{}{}
			b.WriteString(w)
			b.WriteByte(' ')
		}
		return len(seen) < maxWords
	}
	for _, text := range [...]string{r.Key, r.Workflow, r.Error, r.Status} {
		words(text, add)
	}
	for _, value := range r.Tags {
		words(value, add)
	}
	words(input, add)
	return b.String()
}

// inputText returns the text of an input to be indexed. JSON with escapes is decoded, because
// users search for the characters that they see.
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

// query returns an FTS5 query for all words of a search; "" if the search has no words. With
// stems, words may match the beginnings of words. Words contain no quotes, so the query is always
// valid.
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

// maxBehind is the largest value of Page.SearchBehind.
const maxBehind = 10_000

// index indexes up to most runs: first those after the last indexed place, then those before it
// whose words have changed. Both are in order of place: only then does FTS5 collect the words of
// many runs in memory before it writes them. more is false if no run is left.
func (w *writer) index(most int) (n int, more bool, err error) {
	places, err := w.places("SELECT place FROM runs WHERE place>? ORDER BY place LIMIT ?", w.indexed, int64(most))
	if err != nil {
		return 0, false, err
	}
	if err := w.addWords(places); err != nil {
		return 0, false, err
	}
	if n := len(places); n > 0 {
		w.indexed = places[n-1]
		if err := exec(w.conn, "UPDATE meta SET value=?2 WHERE key=?1", metaIndexed, w.indexed); err != nil {
			return 0, false, err
		}
	}
	stale, err := w.places("SELECT place FROM stale ORDER BY place LIMIT ?", int64(most-len(places)))
	if err != nil {
		return 0, false, err
	}
	for _, q := range [...]string{"DELETE FROM words WHERE rowid=?", "DELETE FROM stale WHERE place=?"} {
		for _, p := range stale {
			if err := exec(w.conn, q, p); err != nil {
				return 0, false, err
			}
		}
	}
	n = len(places) + len(stale)
	return n, n == most, w.addWords(stale)
}

func (w *writer) places(query string, args ...any) (places []int64, err error) {
	err = each(w.conn, query, func(s *sqlite.Stmt) error {
		places = append(places, s.ColumnInt64(0))
		return nil
	}, args...)
	return places, err
}

func (w *writer) addWords(places []int64) error {
	seen := make(map[string]struct{}, 64)
	for _, place := range places {
		r, ok, err := w.names.at(w.conn, place)
		if err == nil && !ok {
			err = fmt.Errorf("%w: no run at place %d", ErrDamaged, place)
		}
		if err == nil {
			err = exec(w.conn, "INSERT INTO words(rowid, text) VALUES(?, ?)", place, document(&r, seen))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// behind returns the number of runs that are not indexed, at most maxBehind.
func behind(c *sqlite.Conn) (int, error) {
	n, err := queryInt(c, fmt.Sprintf(`SELECT
		(SELECT count(*) FROM (SELECT 1 FROM runs WHERE place>(SELECT value FROM meta WHERE key=%d) LIMIT %d)) +
		(SELECT count(*) FROM (SELECT 1 FROM stale LIMIT %d))`, metaIndexed, maxBehind, maxBehind))
	return int(min(n, maxBehind)), err
}
