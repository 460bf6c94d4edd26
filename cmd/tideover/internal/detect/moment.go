package detect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // programs name zones, and not every machine has the database

	"github.com/tideover/tideover/internal/lazyregexp"
)

const (
	monthText   = `jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec`
	weekdayText = `sun|mon|tue|wed|thu|fri|sat`
	dateWord    = `(?:today|tomorrow|at|(?:` + weekdayText + `)[a-z]*|(?:` + monthText + `)[a-z]*\.?|\d{1,2}(?:st|nd|rd|th)?|\d{4})`
)

// momentText is the pattern of {moment} in a pack. It matches a little more than can be parsed, so
// that an invalid date is reported and not ignored.
const momentText = `(?:\d{4}-\d\d-\d\d(?:t| at | )|(?:` + dateWord + `,? ){0,6})\d{1,2}(?::\d{2}){0,2}(?:\.\d+)?(?: ?[ap]\.?m\b\.?)?(?: ?` + zoneText + `\b| ?\(` + zoneText + `\))?`

// dateText is the pattern of {date} in a pack: a day in the order of the United States, or of ISO
// 8601.
const dateText = `\d{1,2}/\d{1,2}/\d{4}|\d{4}-\d\d-\d\d`

// The parts of a moment, in any order: 2026-04-11 20:30:24; Jul 10th, 2026 11:52 AM; 10 Jul 15:04; tomorrow at 3pm; Mon
// 7:30pm; 3am on May 2; 9/1; 15:04 UTC; Sep 1.
var (
	isoPart   = lazyregexp.New(`\b(\d{4})-(\d\d)-(\d\d)[tT]?`)
	clockPart = lazyregexp.New(`(?i)\b(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?(?: ?([ap])\.?m\b\.?)?|\b(\d{1,2}) ?([ap])\.?m\b\.?|\bnoon\b|\bmidnight\b`)
	slashPart = lazyregexp.New(`\b(\d{1,2})/(\d{1,2})(?:/(\d{4}|\d{2}))?\b`) // month first, as in the United States
	monthPart = lazyregexp.New(`(?i)\b(` + monthText + `)[a-z]*\b\.?`)
	yearPart  = lazyregexp.New(`\b(\d{4})\b`)
	dayPart   = lazyregexp.New(`(?i)\b(\d{1,2})(?:st|nd|rd|th)?\b`)
	namePart  = lazyregexp.New(`(?i)\b(` + weekdayText + `|today|tonight|tomorrow)(?:s|rs?|nes|[a-z]*day)?\b\.?`)
	placePart = lazyregexp.New(`\b([A-Z][A-Za-z_]+(?:/[A-Z][A-Za-z0-9_+-]+){1,2})\b`)
	zonePart  = lazyregexp.New(`(?i)(\b(?:` + zoneWords + `)|[+-]\d{2}:?\d{2}\b)`)
	zoneOnly  = lazyregexp.New(`^(?i:` + zoneText + `)$`)
	between   = lazyregexp.New(`(?i)\b(?:at|on|of|the|next|this)\b|[ ,()@.]`)
)

// wall is a wall-clock time with an optional date. Missing parts of the date are -1.
type wall struct {
	year, month, day  int
	weekday, ahead    int // ahead in days: 0 today, 1 tomorrow
	hour, minute, sec int
	dateOnly          bool // no time of day is stated
	zone              *time.Location
}

// A program that is retried just after the end of a limit may print the same moment again. So if the
// last such moment was less than this ago, the text means that moment, which is in the past, and not
// the next one.
const (
	recentTime    = time.Hour            // for a time of day
	recentWeekday = 24 * time.Hour       // with a weekday
	recentDate    = 180 * 24 * time.Hour // with a date without a year
)

// readMoment parses a time of day, optionally with a date and a zone. Without a date it is the next
// such time, and without a year the next such date, unless the last one was recent.
func readMoment(text string, at time.Time, zone *time.Location) (time.Time, error) {
	w, err := parseWall(text, zone)
	if err != nil {
		return time.Time{}, err
	}
	days := w.days(at.In(w.zone))
	if len(days) == 0 {
		return time.Time{}, fmt.Errorf("%q is not a date of the calendar", text)
	}
	for _, day := range days {
		recent := false
		for _, t := range instants(day.Year(), day.Month(), day.Day(), w.hour, w.minute, w.sec, w.zone) {
			if w.year >= 0 || !t.Before(at.Add(-tolerance)) {
				return t, nil
			}
			recent = recent || at.Sub(t) <= w.recent()
		}
		if end := instants(day.Year(), day.Month(), day.Day()+1, 0, 0, 0, w.zone)[0]; w.dateOnly && end.After(at) {
			return end, nil // it ends some time today
		}
		if recent {
			break
		}
	}
	return time.Time{}, errPast
}

// readDate parses a date without a time of day: the limit ends some time on that day. It returns the
// beginning of the day, or if that is over, the end of the day.
func readDate(text string, at time.Time, zone *time.Location) (time.Time, error) {
	day, err := time.Parse("1/2/2006", text)
	if err != nil {
		day, err = time.Parse(time.DateOnly, text)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a date: want one such as 10/2/2026", text)
	}
	midnight := func(days int) time.Time {
		d := day.AddDate(0, 0, days)
		return instants(d.Year(), d.Month(), d.Day(), 0, 0, 0, zone)[0]
	}
	if begin := midnight(0); !begin.Before(at.Add(-tolerance)) {
		return begin, nil
	}
	return midnight(1), nil
}

// next returns the first time after at with this time of day.
func (w *wall) next(at time.Time) time.Time {
	today := at.In(w.zone)
	for days := 0; ; days++ {
		for _, t := range instants(today.Year(), today.Month(), today.Day()+days, w.hour, w.minute, w.sec, w.zone) {
			if t.After(at) {
				return t
			}
		}
	}
}

// recent returns how long ago a moment of this form may be to count as recent.
func (w *wall) recent() time.Duration {
	switch {
	case w.month > 0:
		return recentDate
	case w.weekday >= 0:
		return recentWeekday
	default:
		return recentTime
	}
}

// parts is a text from which the parts of a moment are taken.
type parts struct{ rest string }

// take removes what a pattern matches and returns its groups; "" for those that do not match.
func (p *parts) take(re *lazyregexp.Regexp) []string {
	groups := append(re.FindStringSubmatch(p.rest), make([]string, 7)...)
	if groups[0] != "" {
		p.rest = strings.Replace(p.rest, groups[0], " ", 1)
	}
	return groups
}

func parseWall(text string, zone *time.Location) (w wall, err error) {
	p := &parts{text}
	place, iso, clock, slash := p.take(placePart)[1], p.take(isoPart), p.take(clockPart), p.take(slashPart)
	w = wall{year: digits(iso[1], -1), month: digits(iso[2], -1), day: digits(iso[3], -1), hour: digits(clock[1]+clock[5], 0),
		minute: digits(clock[2], 0), sec: digits(clock[3], 0), weekday: -1, ahead: -1, dateOnly: clock[0] == "", zone: zone}
	w.date(slash, p)
	switch half := strings.ToLower(clock[4] + clock[6]); {
	case strings.EqualFold(clock[0], "noon"):
		w.hour = 12
	case strings.EqualFold(clock[0], "midnight"):
	case !w.dateOnly:
		err = w.clock(half, clock[2] != "")
	case w.month < 0 && digits(strings.TrimSpace(p.rest), -1) >= 0:
		err = fmt.Errorf("%s alone is ambiguous", strings.TrimSpace(p.rest))
	case w.month < 0:
		return w, fmt.Errorf("%q is not a time", text)
	}
	if err != nil {
		return w, fmt.Errorf("%q is not a time: %w", text, err)
	}
	where := cmp.Or(place, p.take(zonePart)[1])
	rest := between.ReplaceAllString(p.rest, "")
	if rest != "" && !zoneOnly.MatchString(rest) {
		return w, fmt.Errorf("%q is not a time", text)
	}
	if where = strings.ReplaceAll(cmp.Or(rest, where), " ", ""); where != "" {
		w.zone, err = readZone(where, zone)
	}
	return w, err
}

// date sets the date or the day of the week. slash has the groups of slashPart.
func (w *wall) date(slash []string, p *parts) {
	if slash[0] != "" {
		w.month, w.day, w.year = digits(slash[1], 0), digits(slash[2], 0), digits(slash[3], -1)
		if len(slash[3]) == 2 {
			w.year += 2000
		}
		if w.month > 12 {
			w.month, w.day = w.day, w.month
		}
	} else if name := p.take(monthPart)[1]; name != "" {
		w.month = 1 + slices.Index(strings.Split(monthText, "|"), strings.ToLower(name))
		w.year = digits(p.take(yearPart)[1], -1)
		w.day = digits(p.take(dayPart)[1], -1)
	}
	if name := strings.ToLower(p.take(namePart)[1]); w.month < 0 && name != "" {
		w.weekday = slices.Index(strings.Split(weekdayText, "|"), name)
		w.ahead = slices.Index([]string{"today", "tomorrow", "tonight"}, name) % 2
	}
}

// digits parses a number. If the text is not a number, it returns the value of none.
func digits(text string, none int) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return none
	}
	return n
}

// clock checks the time of day and converts it to 24 hours.
func (w *wall) clock(half string, minutes bool) error {
	switch {
	case half == "" && !minutes:
		return fmt.Errorf("%d alone is ambiguous", w.hour)
	case half != "" && (w.hour < 1 || w.hour > 12), w.hour > 23, w.minute > 59, w.sec > 59:
		return fmt.Errorf("%d:%02d:%02d is not a time of day", w.hour, w.minute, w.sec)
	}
	if half != "" {
		w.hour %= 12
	}
	if half == "p" {
		w.hour += 12
	}
	return nil
}

// days returns the days that the date may mean, in order; the first that fits counts. Each is given
// as noon UTC, which no clock change moves to another day.
func (w *wall) days(today time.Time) (list []time.Time) {
	noon := func(year int, month time.Month, day int) time.Time {
		return time.Date(year, month, day, 12, 0, 0, 0, time.UTC)
	}
	switch {
	case w.month > 0:
		years := []int{w.year}
		if w.year < 0 {
			years = []int{today.Year() - 1, today.Year(), today.Year() + 1}
		}
		for _, year := range years {
			if d := noon(year, time.Month(w.month), w.day); d.Day() == w.day && d.Month() == time.Month(w.month) { // not 30 February
				list = append(list, d)
			}
		}
	case w.ahead >= 0:
		list = append(list, noon(today.Year(), today.Month(), today.Day()+w.ahead))
	default:
		for n := -1; n <= 8; n++ { // more than a week: a clock change may skip the time of one day, or the time may be over
			d := noon(today.Year(), today.Month(), today.Day()+n)
			if w.weekday < 0 || d.Weekday() == time.Weekday(w.weekday) {
				list = append(list, d)
			}
		}
	}
	return list
}

// zoneText matches a zone after a time in a pack. zoneWords matches only what is surely one.
const (
	zoneText  = `(?:z|(?:utc|gmt)?[+-]\d{1,2}(?::?\d{2})?|[a-z]{2,5}|[a-z_]+(?:/[a-z0-9_+-]+){1,2})`
	zoneWords = `z\b|(?:utc|gmt)(?: ?[+-]\d{1,2}(?::?\d{2})?)?\b|[+-]\d{2}:?\d{2}\b|(?-i:[A-Z]{2,4}T|[A-Z][A-Za-z_]+(?:/[A-Z][A-Za-z0-9_+-]+){1,2})\b|(?:pacific|eastern|central|mountain)(?: (?:standard|daylight))?(?: time)?\b|local(?: time)?\b`
)

// abbreviations has the offsets, in minutes, of common abbreviations. An abbreviation is an offset
// and not a place, so it includes daylight saving. Of those with several meanings, CST is
// America's, BST Britain's and IST India's.
var abbreviations = map[string]int{
	"Z": 0, "UTC": 0, "GMT": 0, "WET": 0, "WEST": 60, "BST": 60, "CET": 60, "CEST": 120, "EET": 120, "EEST": 180, "MSK": 180,
	"NST": -210, "NDT": -150, "AST": -240, "ADT": -180, "EST": -300, "EDT": -240, "CST": -360, "CDT": -300,
	"MST": -420, "MDT": -360, "PST": -480, "PDT": -420, "AKST": -540, "AKDT": -480, "HST": -600,
	"IST": 330, "JST": 540, "KST": 540, "AEST": 600, "AEDT": 660, "NZST": 720, "NZDT": 780,
}

// places has the names that Americans use for a zone instead of an offset.
var places = map[string]string{
	"ET": "America/New_York", "CT": "America/Chicago", "MT": "America/Denver", "PT": "America/Los_Angeles",
	"EASTERN": "America/New_York", "CENTRAL": "America/Chicago", "MOUNTAIN": "America/Denver", "PACIFIC": "America/Los_Angeles",
}

var offset = lazyregexp.New(`^(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?$`)

// readZone parses a zone: a name of the database, an abbreviation or an offset.
func readZone(text string, local *time.Location) (*time.Location, error) {
	upper := strings.ToUpper(text)
	if strings.HasPrefix(upper, "LOCAL") {
		return local, nil
	}
	for _, word := range []string{"TIME", "STANDARD", "DAYLIGHT"} { // Pacific Standard Time
		upper = strings.TrimSuffix(upper, word)
	}
	if minutes, ok := abbreviations[upper]; ok {
		return time.FixedZone(upper, minutes*60), nil
	}
	if m := offset.FindStringSubmatch(upper); m != nil {
		hours, _ := strconv.Atoi(m[2])
		minutes, _ := strconv.Atoi("0" + m[3])
		if hours > 14 || minutes > 59 {
			return nil, fmt.Errorf("zone %q is unknown", text)
		}
		seconds := (hours*60 + minutes) * 60
		if m[1] == "-" {
			seconds = -seconds
		}
		return time.FixedZone(upper, seconds), nil
	}
	text = cmp.Or(places[upper], text)
	if zone, err := time.LoadLocation(text); err == nil && strings.Contains(text, "/") {
		return zone, nil
	}
	return nil, fmt.Errorf("zone %q is unknown", text)
}

// instants returns the times at which the clocks of a zone show this time: usually one, two if the
// clocks are set back over it. A time that they skip is interpreted with the offset before the
// change, which is never too early.
func instants(year int, month time.Month, day, hour, minute, second int, zone *time.Location) []time.Time {
	naive := time.Date(year, month, day, hour, minute, second, 0, time.UTC)
	_, before := naive.Add(-24 * time.Hour).In(zone).Zone()
	_, after := naive.Add(24 * time.Hour).In(zone).Zone()
	var found []time.Time
	for _, seconds := range []int{max(before, after), min(before, after)} { // a larger offset is earlier
		t := naive.Add(-time.Duration(seconds) * time.Second).In(zone)
		if _, actual := t.Zone(); actual == seconds && (len(found) == 0 || !found[0].Equal(t)) {
			found = append(found, t)
		}
	}
	if len(found) == 0 {
		found = append(found, naive.Add(-time.Duration(before)*time.Second).In(zone))
	}
	return found
}
