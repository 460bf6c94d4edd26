package chaos

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

const day = 24 * time.Hour

// maxDuration is the longest duration of a spec. It keeps sums of durations within int64.
const maxDuration = 366 * day

// parseDuration reads a duration in the form of [retry.ParseDuration].
func parseDuration(text string) (time.Duration, error) {
	d, err := retry.ParseDuration(text)
	if err == nil && d > maxDuration {
		return 0, fmt.Errorf("%q is above %s", text, textfmt.PolicyDuration(maxDuration))
	}
	return d, err
}

var parsePositive, parsePadding = positive(parseDuration), positive(parseSize)

// positive returns a parser that accepts what parse accepts, except zero.
func positive[T comparable](parse func(string) (T, error)) func(string) (T, error) {
	return func(text string) (T, error) {
		v, err := parse(text)
		if err == nil && v == *new(T) {
			err = fmt.Errorf("%q is not above zero", text)
		}
		return v, err
	}
}

// maxSize is the greatest size of a body or of headers, because they are kept in memory.
const maxSize = 64 << 20

// parseSize reads a number of bytes, in KiB or MiB or without a unit.
func parseSize(text string) (int64, error) {
	unit := strings.TrimLeft(text, "0123456789")
	n, ok := textfmt.ParseSize(text)
	if !ok || n > maxSize || unit != "" && unit != "KiB" && unit != "MiB" {
		return 0, fmt.Errorf("%q is not a number of bytes such as 500 or 64KiB, up to %s", text, textfmt.FormatSize(maxSize))
	}
	return n, nil
}

func parseCount(text string, most int) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n < 1 || int(n) > most {
		return 0, fmt.Errorf("%q is not a number from 1 to %d", text, most)
	}
	return int(n), nil
}

// countUpTo returns a parser for numbers from 1 to most.
func countUpTo(most int) func(string) (int, error) {
	return func(text string) (int, error) { return parseCount(text, most) }
}

func parsePercent(text string) (float64, error) {
	n, ok := textfmt.ParsePercent(text)
	if !ok {
		return 0, fmt.Errorf("%q is not a share such as 20%% or 0.5%%, up to 100%%", text)
	}
	return n, nil
}

// parsePace reads a number of bytes per time, such as 10/100ms.
func parsePace(text string) (p Pace, err error) {
	bytes, every, ok := strings.Cut(text, "/")
	if !ok {
		return p, fmt.Errorf("%q is not a number of bytes per time, such as 10/100ms or 1KiB/50ms", text)
	}
	if p.Bytes, err = parseSize(bytes); err != nil {
		return p, err
	}
	if p.Bytes == 0 {
		return p, fmt.Errorf("%q: the number of bytes must be above zero; use stall for a body that stops", text)
	}
	p.Every, err = parsePositive(every)
	return p, err
}

// String returns the text form of the pace.
func (p Pace) String() string {
	if p == (Pace{}) {
		return ""
	}
	return textfmt.FormatSize(p.Bytes) + "/" + textfmt.PolicyDuration(p.Every)
}

// parseService reads a service time, such as 50ms or 50ms+10ms.
func parseService(text string) (s Service, err error) {
	base, more, grows := strings.Cut(text, "+")
	if s.Base, err = parseDuration(base); err == nil && grows {
		s.More, err = parseDuration(more)
	}
	return s, err
}

// String returns the text form of the service time.
func (s Service) String() string {
	switch {
	case s == (Service{}):
		return ""
	case s.More == 0:
		return textfmt.PolicyDuration(s.Base)
	}
	return textfmt.PolicyDuration(s.Base) + "+" + textfmt.PolicyDuration(s.More)
}

// parsePosition reads a position in a body: 100, 1KiB, 50% or event:3.
func parsePosition(text string) (p Position, err error) {
	bad := fmt.Errorf("%q is not a position in a body, such as 100, 1KiB, 50%% or event:3", text)
	if digits, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.ParseUint(digits, 10, 7)
		if err != nil || n > 100 {
			return p, bad
		}
		return Position{int64(n), "%"}, nil
	}
	if digits, ok := strings.CutPrefix(text, "event:"); ok {
		n, err := strconv.ParseUint(digits, 10, 31)
		if err != nil || n > maxEvents {
			return p, bad
		}
		return Position{int64(n), "event"}, nil
	}
	if p.N, err = parseSize(text); err != nil {
		return p, bad
	}
	return p, nil
}

// String returns the text form of the position.
func (p Position) String() string {
	switch p.Unit {
	case "%":
		return strconv.FormatInt(p.N, 10) + "%"
	case "event":
		return "event:" + strconv.FormatInt(p.N, 10)
	}
	return textfmt.FormatSize(p.N)
}

// bodies are the kinds of bodies that need no further value.
var bodies = []string{Echo, Empty, OpenAI, Responses, Anthropic}

func parseBody(text string) (Body, error) {
	switch {
	case text == "auto":
		return Body{}, nil
	case slices.Contains(bodies, text):
		return Body{Kind: text}, nil
	case strings.HasPrefix(text, `"`):
		t, err := unquote(text)
		return Body{Kind: Text, Text: t}, err
	}
	n, err := parseSize(text)
	if err != nil {
		return Body{}, fmt.Errorf("%q is not a body; want auto, %s, a text in quotes or a size such as 64KiB", text, strings.Join(bodies, ", "))
	}
	return Body{Kind: Filler, Size: n}, nil
}

// String returns the text form of the body.
func (b Body) String() string {
	switch b.Kind {
	case Text:
		return strconv.QuoteToASCII(b.Text)
	case Filler:
		return textfmt.FormatSize(b.Size)
	}
	return b.Kind
}

// ceilSeconds rounds up to whole seconds.
func ceilSeconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

// Delay is a random or fixed delay. The zero value means none.
type Delay struct {
	Low, High time.Duration // the shortest and the longest; the same if the delay is fixed
	Lognormal bool          // lognormal distribution: Low is the median, and High the 99th percentile
}

// z99 is the 99th percentile of the standard normal distribution.
const z99 = 2.3263478740408408

// pick returns a delay. u is uniform in [0,1), and z has the standard normal distribution.
func (d Delay) pick(u, z float64) time.Duration {
	if !d.Lognormal {
		return d.Low + time.Duration(u*float64(d.High-d.Low))
	}
	spread := math.Log(float64(d.High)/float64(d.Low)) / z99
	// The tail is unbounded, and a delay of days is of no use.
	return time.Duration(min(float64(d.Low)*math.Exp(spread*z), 10*float64(d.High)))
}

// parseDelay reads a delay: 50ms, 50ms..200ms or p50:50ms..p99:2s.
func parseDelay(text string) (d Delay, err error) {
	low, high, ranged := strings.Cut(text, "..")
	median, logLow := strings.CutPrefix(low, "p50:")
	tail, logHigh := strings.CutPrefix(high, "p99:")
	if logLow != logHigh {
		return d, fmt.Errorf("%q is not a delay; want 50ms, 50ms..200ms or p50:50ms..p99:2s", text)
	}
	if d.Low, err = parseDuration(median); err != nil {
		return d, err
	}
	d.High, d.Lognormal = d.Low, logLow
	if ranged {
		if d.High, err = parseDuration(tail); err != nil {
			return d, err
		}
	}
	return d, d.check()
}

// check returns the problem of a delay that was set in a spec.
func (d Delay) check() error {
	switch {
	case d.High == 0:
		return fmt.Errorf("%s: a delay must be above zero", d.text())
	case d.Low < 0 || d.High < d.Low || d.High > maxDuration:
		return fmt.Errorf("%s: the second time must not be shorter than the first", d.text())
	case d.Lognormal && d.Low == 0:
		return fmt.Errorf("%s: the median must be above zero", d.text())
	}
	return nil
}

func (d Delay) text() string {
	low, high := textfmt.PolicyDuration(d.Low), textfmt.PolicyDuration(d.High)
	switch {
	case d.Lognormal:
		return "p50:" + low + "..p99:" + high
	case d.Low == d.High:
		return low
	}
	return low + ".." + high
}

// String returns the text form of the delay.
func (d Delay) String() string {
	if d == (Delay{}) {
		return ""
	}
	return d.text()
}
