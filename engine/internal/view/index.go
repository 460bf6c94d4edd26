package view

import (
	"encoding/json"
	"fmt"
	"slices"
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
// characters, and bytes that are not UTF-8, separate words. It stops and returns false when f
// returns false.
func words(text string, f func(string) bool) bool {
	text = text[:min(len(text), maxText)]
	for i := 0; i < len(text); {
		start, lower, size := i, true, 1
	word:
		for ; i < len(text); i += size {
			switch size = 1; classes[text[i]] {
			case lowerOrDigit:
			case upper:
				lower = false
			case ofRune:
				var inWord bool
				if size, inWord = wordRune(text[i:]); !inWord {
					break word
				}
				lower = false
			default:
				break word
			}
		}
		if i > start && !f(normalize(text[start:i], lower)) {
			return false
		}
		i += size // a separator
	}
	return true
}

// class is what a byte of a text is in a word.
type class byte

const (
	separator class = iota
	lowerOrDigit
	upper
	ofRune // not ASCII
)

// classes has the class of each byte.
var classes = func() (list [256]class) {
	for c := range list {
		switch {
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
			list[c] = lowerOrDigit
		case 'A' <= c && c <= 'Z':
			list[c] = upper
		case c >= utf8.RuneSelf:
			list[c] = ofRune
		}
	}
	return list
}()

// wordRune returns the size of the first character of a text, and whether it is in words.
func wordRune(text string) (size int, inWord bool) {
	r, size := utf8.DecodeRuneInString(text)
	return size, unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r)
}

// normalize returns a word as it is indexed: in lower case, and cut if it is long.
func normalize(word string, lower bool) string {
	if !lower {
		word = strings.ToLower(word)
	}
	return textfmt.Truncate(word, maxWord)
}

// wordsOf calls f with each word of a run, until f returns false. Words may be repeated.
func wordsOf(r *Run, f func(string) bool) {
	for _, text := range [...]string{r.Key, r.Workflow, r.Error, r.Status} {
		if !words(text, f) {
			return
		}
	}
	for _, value := range r.Tags {
		if !words(value, f) {
			return
		}
	}
	words(inputText(r.Input), f)
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

// searchWord is a word of a search.
type searchWord struct {
	text string
	stem bool // it also matches words that begin with it
}

func (w *searchWord) matches(word string) bool {
	return word == w.text || w.stem && strings.HasPrefix(word, w.text)
}

// query returns the words of a search. With stems, words may match the beginnings of words.
func query(search string, stems bool) (list []searchWord) {
	words(search, func(w string) bool {
		list = append(list, searchWord{w, stems && utf8.RuneCountInString(w) >= minStem})
		return len(list) < maxQuery
	})
	return list
}

// hasWords reports whether a run has all words of a search.
func hasWords(r *Run, list []searchWord) bool {
	missing := slices.Clone(list)
	wordsOf(r, func(text string) bool {
		missing = slices.DeleteFunc(missing, func(w searchWord) bool { return w.matches(text) })
		return len(missing) > 0
	})
	return len(missing) == 0
}

// maxBehind is the largest value of Page.SearchBehind.
const maxBehind = 10_000

// indexState says how far the search index is. The table meta stores it.
type indexState struct {
	indexed  int64 // runs up to this place are indexed, except those in the table stale
	outdated int64 // about how many runs of the segments are out of date
	old      int64 // segments up to this one are being renewed; 0 if none are
	renewed  int64 // runs up to this place were indexed again
}

// indexer writes the search index, and has cached data of it.
type indexer struct {
	conn  *sqlite.Conn
	names *names
	indexState
	stored    indexState    // as the table meta has it
	segments  []segment     // the slice is replaced when one is dropped
	words     *collector    // words of the next segment; nil unless runs are being indexed
	lastWords collectorSize // of the last segment
}

// extend indexes up to most runs as one segment: runs whose words have changed, and runs after the
// last indexed place. If there are none, it renews segments. more is false if there is nothing left
// to do.
func (x *indexer) extend(most int) (n int, more bool, err error) {
	x.words = newCollector(x.lastWords)
	defer func() { x.words, x.lastWords = nil, collectorSize{len(x.words.words), len(x.words.entries)} }()
	n, err = x.indexStale(most)
	if err != nil {
		return 0, false, err
	}
	added, last, err := x.collect("SELECT "+columns+" FROM runs WHERE place>? ORDER BY place LIMIT ?", x.indexed, int64(most-n))
	if err != nil {
		return 0, false, err
	}
	x.indexed = last
	if n += added; n == 0 {
		return x.renew(most)
	}
	return n, n == most || x.words.full() || x.mustRenew(), x.addSegment()
}

// indexStale adds runs to the collector whose words have changed since they were indexed.
func (x *indexer) indexStale(most int) (n int, err error) {
	stale, err := queryPlaces(x.conn, "SELECT place FROM stale ORDER BY place LIMIT ?", int64(most))
	if err != nil || len(stale) == 0 {
		return 0, err
	}
	for ; n < len(stale) && !x.words.full(); n++ {
		r, ok, err := x.names.at(x.conn, stale[n])
		if err == nil && !ok {
			err = fmt.Errorf("%w: no run at place %d", ErrDamaged, stale[n])
		}
		if err != nil {
			return 0, err
		}
		x.words.add(stale[n], &r)
	}
	x.outdated += int64(n)
	return n, exec(x.conn, "DELETE FROM stale WHERE place<=?", stale[n-1])
}

// collect adds the runs of a query to the collector, until that is full. The query selects columns
// of the runs after a place, which is its first argument, in order of place. collect returns the
// number of runs and the last place.
func (x *indexer) collect(query string, after int64, args ...any) (n int, last int64, err error) {
	last = after
	err = each(x.conn, query, func(s *sqlite.Stmt) error {
		if x.words.full() {
			return errStop
		}
		r, place, err := x.names.whole(x.conn, s)
		if err != nil {
			return err
		}
		x.words.add(place, &r)
		n, last = n+1, place
		return nil
	}, append([]any{after}, args...)...)
	return n, last, err
}

// addSegment writes the collected words as a segment.
func (x *indexer) addSegment() error {
	if len(x.words.places) == 0 {
		return nil
	}
	g, err := x.words.write(x.conn, x.nextSegment())
	x.segments = append(x.segments, g)
	return err
}

func queryPlaces(c *sqlite.Conn, query string, args ...any) (places []int64, err error) {
	err = each(c, query, func(s *sqlite.Stmt) error {
		places = append(places, s.ColumnInt64(0))
		return nil
	}, args...)
	return places, err
}

// behind returns the number of runs that are not indexed, at most maxBehind.
func behind(c *sqlite.Conn) (int, error) {
	n, err := queryInt(c, fmt.Sprintf(`SELECT
		(SELECT count(*) FROM (SELECT 1 FROM runs WHERE place>(SELECT value FROM meta WHERE key=%d) LIMIT %d)) +
		(SELECT count(*) FROM (SELECT 1 FROM stale LIMIT %d))`, metaIndexed, maxBehind, maxBehind))
	return int(min(n, maxBehind)), err
}
