package detect

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // programs name zones, and not every machine has the database

	"github.com/tideover/tideover/internal/lazyregexp"
)

// zoneText matches a zone after a time.
const zoneText = `(?:z|(?:utc|gmt)?[+-]\d{1,2}(?::?\d{2})?|[a-z]{2,5}|[a-z_]+(?:/[a-z0-9_+-]+){1,2})`

// abbreviations has the offsets, in minutes, of common abbreviations. An abbreviation is an offset
// and not a place, so it includes daylight saving. Of those with several meanings, CST is
// America's, BST Britain's and IST India's.
var abbreviations = map[string]int{
	"Z": 0, "UTC": 0, "GMT": 0, "WET": 0, "WEST": 60, "BST": 60, "CET": 60, "CEST": 120, "EET": 120, "EEST": 180, "MSK": 180,
	"NST": -210, "NDT": -150, "AST": -240, "ADT": -180, "EST": -300, "EDT": -240, "CST": -360, "CDT": -300,
	"MST": -420, "MDT": -360, "PST": -480, "PDT": -420, "AKST": -540, "AKDT": -480, "HST": -600,
	"IST": 330, "JST": 540, "KST": 540, "AEST": 600, "AEDT": 660, "NZST": 720, "NZDT": 780,
}

// places has the short names that Americans use for a zone instead of an offset.
var places = map[string]string{"ET": "America/New_York", "CT": "America/Chicago", "MT": "America/Denver", "PT": "America/Los_Angeles"}

var offset = lazyregexp.New(`^(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?$`)

// readZone parses a zone: a name of the database, an abbreviation or an offset.
func readZone(text string) (*time.Location, error) {
	upper := strings.ToUpper(text)
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
	if place := places[upper]; place != "" {
		text = place
	}
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
