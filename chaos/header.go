package chaos

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// prefixes are the allowed prefixes of header names in an answer. Other names are
// rejected, because they are usually misspelled arguments.
var prefixes = []string{"x-", "ratelimit-", "anthropic-ratelimit-"}

// otherHeaders are allowed header names without one of the prefixes.
var otherHeaders = []string{"retry-after", "retry-after-ms", "date", "connection", "content-type", "location", "server", "set-cookie", "www-authenticate"}

func isHeader(name string) bool {
	return slices.Contains(otherHeaders, name) || slices.ContainsFunc(prefixes, func(prefix string) bool {
		rest, ok := strings.CutPrefix(name, prefix)
		return ok && rest != "" && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
	})
}

func headerNames() string {
	return strings.Join(otherHeaders, ", ") + ", " + strings.Join(prefixes, "..., ") + "..."
}

// isWait reports whether the header states a wait or a point in time. In a spec its value
// may be a form such as epoch:30s, from which the server computes the value to send. Date
// is such a header, so that a spec can simulate a wrong clock.
func isWait(name string) bool {
	return name == "date" || strings.Contains(name, "retry-after") || strings.Contains(name, "ratelimit") && strings.Contains(name, "reset")
}

// waitForm is a form in which a header states a wait. In a spec it is FORM:DURATION.
type waitForm struct {
	name  string
	point bool // writes a point in time, in whole seconds
	write func(d time.Duration, now time.Time) string
}

var waitForms = []waitForm{
	{"seconds", false, func(d time.Duration, _ time.Time) string { return strconv.FormatInt(ceilSeconds(d), 10) }},
	{"decimal", false, func(d time.Duration, _ time.Time) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }},
	{"ms", false, func(d time.Duration, _ time.Time) string {
		return strconv.FormatInt(int64(math.Ceil(float64(d)/float64(time.Millisecond))), 10)
	}},
	{"duration", false, func(d time.Duration, _ time.Time) string { return d.String() }},
	{"imf", true, dated(http.TimeFormat)},
	{"rfc850", true, dated("Monday, 02-Jan-06 15:04:05 GMT")},
	{"asctime", true, dated(time.ANSIC)},
	{"rfc3339", true, dated(time.RFC3339)},
	{"epoch", true, func(d time.Duration, now time.Time) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }},
	{"epoch-ms", false, func(d time.Duration, now time.Time) string {
		return strconv.FormatInt(now.Add(d+time.Millisecond-1).UnixMilli(), 10)
	}},
}

func dated(layout string) func(time.Duration, time.Time) string {
	return func(d time.Duration, now time.Time) string { return now.Add(d).UTC().Format(layout) }
}

// nonsense has invalid values that real servers send and that clients must ignore, by
// their names in a spec.
var nonsense = map[string]string{"garbage": "soon", "negative": "-5", "huge": "10000000000"}

// due, as a value or after a form, stands for the time until the limit or the outage ends.
const due = "due"

func usesDue(value string) bool { return value == due || strings.HasSuffix(value, ":"+due) }

// cutForm splits FORM:DURATION into the form and the duration.
func cutForm(value string) (form waitForm, span string, ok bool) {
	for _, f := range waitForms {
		if span, ok := strings.CutPrefix(value, f.name+":"); ok {
			return f, span, true
		}
	}
	return waitForm{}, "", false
}

// parseSpan reads the duration after a form, which may be negative.
func parseSpan(text string) (time.Duration, error) {
	rest, negative := strings.CutPrefix(text, "-")
	d, err := parseDuration(rest)
	if negative {
		d = -d
	}
	return d, err
}

// checkHeader returns the problem of a header value, or nil.
func checkHeader(name, value string) error {
	if strings.ContainsFunc(value, func(r rune) bool { return r != '\t' && (r < ' ' || r > '~') }) || strings.TrimSpace(value) != value {
		return fmt.Errorf("%q can't be the value of a header", value)
	}
	if _, span, ok := cutForm(value); ok && isWait(name) && span != due {
		_, err := parseSpan(span)
		return err
	}
	return nil
}

// headerValue returns the value to send. left is the time that due stands for.
func headerValue(h Header, now time.Time, left time.Duration) string {
	if !isWait(h.Name) {
		return h.Value
	}
	if text, ok := nonsense[h.Value]; ok {
		return text
	}
	value := h.Value
	if value == due {
		value = ownForm(h.Name) + ":" + due
	}
	form, span, ok := cutForm(value)
	switch {
	case !ok:
		return h.Value
	case span != due:
		left, _ = parseSpan(span) // it was checked before
	case form.point: // round up, so that the client does not come back too early
		left = now.Add(left + time.Second - 1).Truncate(time.Second).Sub(now)
	}
	return form.write(left, now)
}

// ownForm returns the form in which servers usually write this header.
func ownForm(name string) string {
	switch {
	case name == "date":
		return "imf"
	case strings.HasSuffix(name, "-ms"):
		return "ms"
	case strings.HasPrefix(name, "anthropic-"):
		return "rfc3339"
	case strings.HasPrefix(name, "x-ratelimit-reset-"):
		return "duration"
	case name == "x-ratelimit-reset":
		return "epoch"
	}
	return "seconds"
}

// writeHeaders adds the headers of an answer. If a header states when a rate limit resets,
// it also sets the header with the remaining requests to 0, unless the answer has that
// header. Points in time are relative to the answer's own Date, which the spec may have
// set wrong on purpose.
func writeHeaders(to http.Header, list []Header, now time.Time, left time.Duration) {
	for _, h := range list {
		if _, span, ok := cutForm(h.Value); h.Name == "date" && ok && span != due {
			skew, _ := parseSpan(span)
			to.Set("Date", headerValue(h, now, left))
			now = now.Add(skew)
		}
		if isWait(h.Name) && strings.Contains(h.Name, "reset") {
			to.Set(strings.Replace(h.Name, "reset", "remaining", 1), "0")
		}
	}
	if to.Get("Date") == "" {
		to.Set("Date", now.UTC().Format(http.TimeFormat))
	}
	for _, h := range list {
		if _, _, formed := cutForm(h.Value); h.Name != "date" || !formed {
			to.Set(h.Name, headerValue(h, now, left))
		}
	}
}
