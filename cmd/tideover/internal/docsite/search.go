package docsite

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// section is a part of a page from one heading to the next, for the search.
type section struct {
	page    *page
	heading string
	anchor  string
	text    string

	lowerHeading string
	lowerText    string
}

// Limits of a search.
const (
	maxQuery   = 100 // bytes
	maxResults = 40
)

// Scores of a word of the query that is in the title, in the heading, and in the text of a section.
// A word counts at most maxCount times in a text. The script docs.js has the same numbers.
const (
	titleScore   = 6
	headingScore = 12
	maxCount     = 4
)

// result is a section that a search has found.
type result struct {
	Page    string
	Heading string // "" for the beginning of a page
	URL     string
	Excerpt []excerptPart
	section *section
	score   int
}

// excerptPart is a part of an excerpt.
type excerptPart struct {
	Text   string
	Marked bool // a word of the query
}

// queryWords returns the words of a query.
func queryWords(query string) []string { return strings.Fields(strings.ToLower(query)) }

// search returns the sections that contain all words of the query, the best first. Sections of pages
// that are seldom the answer come after all others. Sections of the same score are in reading order.
func (s *site) search(query string) (list []result) {
	words := queryWords(query)
	if len(words) == 0 {
		return nil
	}
	for _, p := range s.pages {
		title := strings.ToLower(p.Title + " " + p.Label)
		for i := range p.sections {
			part := &p.sections[i]
			if n := scoreOf(words, title, part.lowerHeading, part.lowerText); n > 0 {
				list = append(list, result{Page: p.Title, Heading: part.heading, URL: s.url(searchPath, p.Path) + "#" + part.anchor, section: part, score: n})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b result) int {
		if last := a.section.page.foundLast(); last != b.section.page.foundLast() {
			if last {
				return 1
			}
			return -1
		}
		return cmp.Compare(b.score, a.score)
	})
	list = list[:min(len(list), maxResults)]
	for i := range list {
		list[i].Excerpt = excerpt(list[i].section.text, words)
	}
	return list
}

// scoreOf returns how well a section matches, or 0 if the section lacks a word. All texts are in
// lower case.
func scoreOf(words []string, title, heading, text string) (score int) {
	for _, w := range words {
		inHeading, inText := count(heading, w, 1), count(text, w, maxCount)
		inTitle := count(title, w, 1)
		if inHeading+inText+inTitle == 0 {
			return 0
		}
		score += titleScore*inTitle + headingScore*inHeading + inText
	}
	return score
}

// count returns how often a word of the text begins with the prefix, but at most limit.
func count(text, prefix string, limit int) (n int) {
	for at := 0; n < limit; {
		i := indexWord(text[at:], prefix)
		if i < 0 {
			return n
		}
		n++
		at += i + len(prefix)
	}
	return n
}

// indexWord returns the index of the first word that begins with the prefix, or -1. A prefix that
// begins with a sign, such as --policy, is found everywhere.
func indexWord(text, prefix string) int {
	first, _ := utf8.DecodeRuneInString(prefix)
	for at := 0; ; {
		i := strings.Index(text[at:], prefix)
		if i < 0 {
			return -1
		}
		at += i
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		if !isWordRune(first) || at == 0 || !isWordRune(before) {
			return at
		}
		at += len(prefix)
	}
}

func isWordRune(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }

// Lengths of an excerpt, in bytes.
const (
	excerptBefore = 60
	excerptLength = 240
)

// excerpt returns the part of a text around the first word of the query that it contains, with all
// words of the query marked.
func excerpt(text string, words []string) (parts []excerptPart) {
	lower := strings.ToLower(text)
	if strings.ContainsFunc(text, func(c rune) bool { return utf8.RuneLen(unicode.ToLower(c)) != utf8.RuneLen(c) }) {
		text = lower // so that indexes are the same
	}
	first := len(text)
	for _, w := range words {
		if i := indexWord(lower, w); i >= 0 {
			first = min(first, i)
		}
	}
	if first == len(text) {
		first = 0 // only the heading has the words
	}
	start, end := 0, len(text)
	if first > excerptBefore {
		start = first - excerptBefore
		start += strings.IndexByte(text[start:first]+" ", ' ') + 1
		start = min(start, first)
	}
	if start+excerptLength < end {
		end = start + excerptLength
		if cut := strings.LastIndexByte(text[start:end], ' '); cut > 0 {
			end = start + cut
		}
	}
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end++
	}
	if start > 0 {
		parts = append(parts, excerptPart{Text: "… "})
	}
	parts = append(parts, mark(text[start:end], lower[start:end], words)...)
	if end < len(text) {
		parts = append(parts, excerptPart{Text: " …"})
	}
	return parts
}

// mark splits a text into parts so that words of the query have parts of their own. lower is the
// text in lower case.
func mark(text, lower string, words []string) (parts []excerptPart) {
	for text != "" {
		at, length := len(text), 0
		for _, w := range words {
			if i := indexWord(lower, w); i >= 0 && (i < at || i == at && len(w) > length) {
				at, length = i, len(w)
			}
		}
		if at > 0 {
			parts = append(parts, excerptPart{Text: text[:at]})
		}
		if length > 0 {
			parts = append(parts, excerptPart{text[at : at+length], true})
		}
		text, lower = text[at+length:], lower[at+length:]
	}
	return parts
}
