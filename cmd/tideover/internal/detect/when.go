package detect

import (
	"strings"
	"time"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// A time in a message is an expression of a time with words before it that introduce it, such as "resets at" or "try again
// in". A wrong time is worse than none: if a message states two different times, it states none.

// timing is an expression of a time in a text.
type timing struct {
	reading
	start, end int
	ofEnd      bool // the words say when the limit ends, not only when to try again
}

const (
	clockText = `(?:\d{1,2}(?::\d{2}){1,2}(?:\.\d+)?(?: ?[ap]\.?m\b\.?)?|\d{1,2} ?[ap]\.?m\b\.?|\bnoon\b|\bmidnight\b)(?: ?\(?(?:` + zoneWords + `)\)?)?`
	nameOfDay = `(?:(?:next |this )?(?:sun|mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?)(?:day)?\b\.?|today\b|tomorrow\b|tonight\b)`
	dateOfDay = `(?:(?:` + monthText + `)[a-z]*\.? \d{1,2}(?:st|nd|rd|th)?\b(?:,? \d{4}\b)?|\d{1,2}(?:st|nd|rd|th)? (?:of )?(?:` + monthText + `)[a-z]*\b\.?(?:,? \d{4}\b)?|\d{4}-\d\d-\d\d|\d{1,2}/\d{1,2}(?:/\d{4}|/\d{2}\b)?)`
	dayText   = `(?:` + nameOfDay + `(?:,? (?:the )?` + dateOfDay + `)?|` + dateOfDay + `)`
)

var (
	// timeText matches an expression of a time: a duration, a date, a time of day, or a number.
	timeText = lazyregexp.New(`(?i)(?P<duration>(?:(?:\b(?:an?|one) (?:hour|day|week)\b|` + durationPart + `)(?:,? and |, | )?)+)` +
		`|(?P<moment>` + dayText + `(?:(?:,? (?:at |@ ?)?|t)` + clockText + `)?|` + clockText + `(?:,? (?:on )?` + dayText + `)?)` +
		`|(?P<number>\b\d+(?:\.\d+)?\b)`)
	// introduction matches the words before a time: what comes back, and then only words that may stand between.
	introduction = lazyregexp.New(`(?i)(?:(?P<end>reset|refresh|renew|replenish|restor|unlock|lift|regain|return|recover|\bavailable|\bback|\buntil|\btill|(?:cycle|period|window|limit)s? end|resum|limit reached ?\||unblock|reactivat|reopen|cool ?down)|(?P<again>\bagain|\bretry|\bwait|\bcontinue|\bcome back))[a-z]*` +
		`(?:[^a-z0-9.!?;]|\\n|(?-i:[A-Z])|\b(?:at|on|in|after|until|till|by|for|from|the|your|it|its|will|be|is|are|again|to|daily|approximately|approx|around|about|roughly|next|another|now|available|access|limits?|quotas?|usage|delay|time|timestamp|seconds?|secs?|ms|millis|reset|of|within|least|or|date|monthly|cycle|period|billing|window|please|try|allow|up|ends?|use|it's|any|more|retry|an additional|further|string|value|int)\b|(?:_|\b)(?:at|in|after|seconds|ms|delay|time)\b){0,12}$`)
	elapsed     = lazyregexp.New(`(?i)\b(?:total|elapsed|waited|took|spent|every|each)\b[^.;!?]{0,40}$`) // before a time that says how long something lasted
	relativeEnd = lazyregexp.New(`(?i)(?:\b|_)(?:in|for|within|wait|another|delay)\W*(?:about|approximately|around|~|the next)?\W*$`)
	secondsEnd  = lazyregexp.New(`(?i)(?:retry[ _-]?after|retry[ _-]?in|seconds|secs|retry[ _-]?delay)\W*$`)
	millisEnd   = lazyregexp.New(`(?i)(?:ms|millis|milliseconds)\W*$`)
)

// introducing has the beginnings of words that introduction needs. Most lines have none, which is quick to see.
var introducing = []string{"reset", "refresh", "renew", "replenish", "restor", "unlock", "lift", "regain", "return", "recover", "available", "back", "until", "till", " end", "resum", "reached", "unblock", "reactivat", "reopen", "cool", "again", "retry", "wait", "continue"}

const introLength = 80 // bytes before a time that may introduce it

// findTimes returns the times that a text introduces, in their order.
func findTimes(text string, at time.Time, zone *time.Location) (list []timing) {
	if !containsAny(strings.ToLower(text), introducing) {
		return nil
	}
	for offset := 0; ; {
		m := timeText.FindStringSubmatchIndex(text[offset:])
		if m == nil {
			return list
		}
		start, end := offset+m[0], offset+m[1]
		end = start + len(strings.TrimRight(text[start:end], " ,"))
		offset += m[1]
		before := strings.ReplaceAll(text[max(0, start-introLength):start], "_", " ")
		intro := introduction.FindStringSubmatchIndex(before)
		if intro == nil || elapsed.MatchString(before) {
			continue
		}
		t := timing{start: start, end: end, ofEnd: intro[2] >= 0}
		said := text[start:end]
		switch {
		case m[2] >= 0:
			t.reading = readLongest(said, at)
			t.end = start + len(t.stated)
		case m[4] >= 0:
			if clockOnly.MatchString(said) && relativeEnd.MatchString(before) {
				t.note = "a clock time after " + before
			} else {
				t.reading = read(said, "moment", at, zone)
			}
		case len(said) == 10 || len(said) == 13:
			t.reading = read(said, "epoch", at, zone)
		case millisEnd.MatchString(before):
			t.reading = read(said, "milliseconds", at, zone)
		case secondsEnd.MatchString(before):
			t.reading = read(said, "seconds", at, zone)
		default:
			continue
		}
		if cutOff(said, text[t.end:], m[2] >= 0) {
			t.reading = reading{note: "the time " + said + " seems to be cut"}
		}
		list = append(list, t)
	}
}

var (
	oneFor   = strings.NewReplacer("an ", "1 ", "a ", "1 ", "one ", "1 ")
	lastPart = lazyregexp.New(`(?i)(?:,? and |, | )?(?:an?|one|\d+(?:\.\d+)?) ?[a-z]+$`)
)

// readLongest reads the longest duration at the beginning of a text: "20s 35 seconds" are two.
func readLongest(text string, at time.Time) reading {
	r := read(oneFor.Replace(strings.ToLower(text)), "duration", at, nil)
	if shorter := strings.TrimSuffix(text, lastPart.FindString(text)); !r.isSet() && shorter != "" && shorter != text {
		return readLongest(shorter, at)
	}
	r.stated = text
	return r
}

var (
	clockOnly  = lazyregexp.New(`^\d{1,2}(?::\d{2}){1,2}$`)
	wordGoesOn = lazyregexp.New(`^[\p{L}\d]|^[:/.]\d|^,? or (?:at|in|after|on) \d|^,\s*$`)
	partFollow = lazyregexp.New(`(?i)^,? ?(?:and )?\d+(?:\.\d+)? ?[a-z]{0,12}$`)
	digitNext  = lazyregexp.New(`^,? ?(?:and |at )?\d`)
	unitNext   = lazyregexp.New(`(?i)^,? ?(?:and )?` + durationPart + `\b`)
	hasClock   = lazyregexp.New(`(?i)\d:\d\d|\d ?[ap]\.?m\b|noon|midnight`)
	nearEnd    = lazyregexp.New("^(?:[^.;!?·)\\]}\"'|]|\\.\\d){0,24}\\.?$")
)

// open reports whether a time is near the end of its text, so that the next line may belong to it.
func (t *timing) open(text string) bool {
	return t.end > 0 && t.end <= len(text) && nearEnd.MatchString(text[t.end:])
}

// isEnd reports whether the time is the end of a limit.
func (t *timing) isEnd() bool { return t.ofEnd && t.isSet() }

// cutOff reports whether the text after a time looks as if it belonged to the time.
func cutOff(said, rest string, duration bool) bool {
	switch {
	case wordGoesOn.MatchString(rest):
		return true
	case duration:
		return partFollow.MatchString(rest) && !unitNext.MatchString(rest)
	default:
		return !hasClock.MatchString(said) && digitNext.MatchString(rest)
	}
}

// statedTime returns the time that the list states: that of the end of the limit before that of the next attempt. It has no
// time if two different ones are stated.
func statedTime(list []timing) (t timing) {
	for _, ofEnd := range []bool{true, false} {
		for _, c := range list {
			switch {
			case c.ofEnd != ofEnd, c.as == "seconds" && t.as == "epoch": // resets_at says more than resets_in_seconds
			case !t.isSet():
				t = c
			case c.isSet() && c.until.Sub(t.until).Abs() > tolerance:
				return timing{reading: reading{note: "two different times are stated: " + t.stated + ", " + c.stated}}
			}
		}
		if t.isSet() || t.note != "" {
			break
		}
	}
	return t
}
