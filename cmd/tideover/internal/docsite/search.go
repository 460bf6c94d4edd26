package docsite

import (
	"cmp"
	"math/bits"
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

// term is a word of a query.
type term struct {
	stem   string // the word without its ending
	weight int    // more for a word that is in few sections
}

// emptyWords carry no meaning in a question.
var emptyWords = strings.Fields(`a about after again all am an and any are as at be been before best but by can could did do does doing for from get gets getting
	give had happen happens has have how i if in into is it its just like make me mean means must my need no not of off on one or our out over should so some something than that the
	their them then there these they this those to too up us use used using want was we were what when where whether which while who whose why will with
	without would you your`)

// endings are those of the forms of a word.
var endings = []string{"ying", "ing", "ies", "ied", "es", "ed", "e", "s", "y"}

// stemOf returns the word without its ending, so that the forms of a word have the same stem.
func stemOf(word string) string {
	for _, e := range endings {
		if rest, found := strings.CutSuffix(word, e); found && len(rest) >= 3 && !strings.HasSuffix(word, "ss") {
			return rest
		}
	}
	return word
}

// maxTerms limits the words of a query that count, and so the time of a search.
const maxTerms = 12

// termsOf returns the words of a query that carry meaning, or all words if none does. Their weights are
// not set.
func termsOf(query string) []term {
	var all, meaningful []term
	for _, w := range strings.Fields(strings.ReplaceAll(strings.ToLower(query), "=", " ")) {
		if bare := strings.Trim(w, `.,;:?!"'“”()`); bare != "" {
			w = bare
		}
		t := term{stem: stemOf(w)}
		if slices.Contains(all, t) {
			continue
		}
		if all = append(all, t); !slices.Contains(emptyWords, w) {
			meaningful = append(meaningful, t)
		}
	}
	if len(meaningful) == 0 {
		meaningful = all
	}
	return meaningful[:min(len(meaningful), maxTerms)]
}

// hit is where a text has a term.
type hit struct {
	at, end int
	whole   bool // it is a form of the word; otherwise the word only begins with the stem
}

// next returns the first hit from a position on. A term that begins with a sign, such as --policy, is
// found everywhere, and others at the beginning of words.
func (t term) next(text string, from int) (hit, bool) {
	first, _ := utf8.DecodeRuneInString(t.stem)
	for at := from; ; {
		i := strings.Index(text[at:], t.stem)
		if i < 0 {
			return hit{}, false
		}
		at += i
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		if isWordRune(first) && at > 0 && isWordRune(before) {
			at += len(t.stem)
			continue
		}
		end := at + len(t.stem)
		if rest := strings.IndexFunc(text[end:], func(c rune) bool { return !isWordRune(c) }); rest >= 0 {
			end += rest
		} else {
			end = len(text)
		}
		return hit{at, end, end == at+len(t.stem) || slices.Contains(endings, text[at+len(t.stem):end])}, true
	}
}

func isWordRune(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }

// count returns how often a text has the word, and how often a longer word begins with it; each at most
// maxCount times.
func (t term) count(text string) (whole, part int) {
	for h, ok := t.next(text, 0); ok && whole < maxCount; h, ok = t.next(text, h.end) {
		if h.whole {
			whole++
		} else if part < maxCount {
			part++
		}
	}
	return whole, part
}

// The ranking. The script docs.js has the same numbers.
const (
	inHeading = 12 // score of a word that is in the heading of a section
	inTitle   = 8  // score of a word that is in the title of the page
	inText    = 2  // score of a word for each time that it is in the text
	maxCount  = 4
)

// scoreOf returns how well a section answers a query, or 0 if it has none of the words. A word counts
// more in the heading and in the title than in the text, more if it is rare, and half if only a longer
// word begins with it. A section that lacks words counts less, down to a third. All texts are in lower
// case.
func scoreOf(terms []term, title, heading, text string) (score int) {
	all, found := 0, 0
	for _, t := range terms {
		n := 0
		for _, place := range []struct {
			text        string
			most, score int
		}{{heading, 1, inHeading}, {title, 1, inTitle}, {text, maxCount, inText}} {
			whole, part := t.count(place.text)
			whole = min(whole, place.most)
			n += (2*whole + min(part, place.most-whole)) * place.score / 2
		}
		if all += t.weight; n > 0 {
			found += t.weight
		}
		score += t.weight * n
	}
	return score * (all + 2*found) / max(3*all, 1)
}

// search returns the sections that have words of the query, the best first. Sections of the same score
// are in reading order.
func (s *site) search(query string) (list []result) {
	terms := s.weigh(termsOf(query))
	for _, p := range s.pages {
		for i := range p.sections {
			part := &p.sections[i]
			n := scoreOf(terms, p.lowerTitle, part.lowerHeading, part.lowerText)
			if p.isSeldomAnswer() {
				n /= 2
			}
			if n > 0 {
				list = append(list, result{Page: p.Title, Heading: part.heading, URL: s.url(searchPath, p.Path) + "#" + part.anchor, section: part, score: n})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b result) int { return cmp.Compare(b.score, a.score) })
	list = list[:min(len(list), maxResults)]
	for i := range list {
		list[i].Excerpt = excerpt(list[i].section.text, terms)
	}
	return list
}

// weigh sets the weights of terms: the number of binary digits of how many sections there are for each
// section with the term.
func (s *site) weigh(terms []term) []term {
	for i := range terms {
		all, with := 0, 0
		for _, p := range s.pages {
			for k := range p.sections {
				all++
				_, inText := terms[i].next(p.sections[k].lowerText, 0)
				_, inHeading := terms[i].next(p.sections[k].lowerHeading, 0)
				if inText || inHeading {
					with++
				}
			}
		}
		terms[i].weight = bits.Len(uint(all / max(with, 1)))
	}
	return terms
}

// Lengths of an excerpt, in bytes.
const (
	excerptBefore = 60
	excerptLength = 240
)

// excerpt returns the part of a text that has most of the terms, with all words of the query marked.
func excerpt(text string, terms []term) (parts []excerptPart) {
	lower := strings.ToLower(text)
	if strings.ContainsFunc(text, func(c rune) bool { return utf8.RuneLen(unicode.ToLower(c)) != utf8.RuneLen(c) }) {
		text = lower // so that indexes are the same
	}
	first := densest(lower, terms)
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
	parts = append(parts, mark(text[start:end], lower[start:end], terms)...)
	if end < len(text) {
		parts = append(parts, excerptPart{Text: " …"})
	}
	return parts
}

// densest returns the position of a hit after which an excerpt has the most terms, or 0 if the text has
// none. A term counts by its weight, and twice if it is a whole word.
func densest(text string, terms []term) (best int) {
	most := 0
	for _, t := range terms {
		for h, ok := t.next(text, 0); ok; h, ok = t.next(text, h.end) {
			sum, end := 0, min(h.at+excerptLength-excerptBefore, len(text))
			for _, other := range terms {
				if o, ok := other.next(text, h.at); ok && o.end <= end {
					sum += other.weight
					if o.whole {
						sum += other.weight
					}
				}
			}
			if sum > most || sum == most && h.at < best {
				most, best = sum, h.at
			}
		}
	}
	return best
}

// mark splits a text into parts so that words of the query have parts of their own. lower is the
// text in lower case.
func mark(text, lower string, terms []term) (parts []excerptPart) {
	for text != "" {
		found := hit{at: len(text), end: len(text)}
		for _, t := range terms {
			if h, ok := t.next(lower, 0); ok && h.at < found.at {
				found = h
			}
		}
		if found.at > 0 {
			parts = append(parts, excerptPart{Text: text[:found.at]})
		}
		if found.at < found.end {
			parts = append(parts, excerptPart{text[found.at:found.end], true})
		}
		text, lower = text[found.end:], lower[found.end:]
	}
	return parts
}
