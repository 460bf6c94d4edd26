package retryhttp

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/decimal"
)

// The headers in which the sender of a request says how long it will wait.
const (
	headerGRPCTimeout      = "Grpc-Timeout"
	headerConnectTimeout   = "Connect-Timeout-Ms"
	headerEnvoyTimeout     = "X-Envoy-Upstream-Rq-Timeout-Ms"
	headerStainlessTimeout = "X-Stainless-Timeout"
	headerRequestTimeout   = "X-Request-Timeout-Ms"
)

// timeoutHeader is one of them.
type timeoutHeader struct {
	name  string
	parse func(string) (time.Duration, bool)
}

// timeoutHeaders says how each of them is read. The last one is about the beginning of
// the answer, the others are about all of it.
var timeoutHeaders = [...]timeoutHeader{
	{headerGRPCTimeout, parseGRPCTimeout},
	{headerConnectTimeout, milliseconds},
	{headerRequestTimeout, milliseconds},
	// 0 means no limit to Envoy. The SDKs for JavaScript cut off what is below a
	// second, so that 0 is theirs for anything shorter.
	{headerEnvoyTimeout, unlessZero(milliseconds)},
	{headerStainlessTimeout, unlessZero(seconds)},
}

// TimeLeft returns how long the sender of a request will wait for the answer,
// from the headers of the request. The shortest of these counts:
//
//   - Grpc-Timeout: up to eight digits and a unit, one of H M S m u n
//   - Connect-Timeout-Ms, X-Envoy-Upstream-Rq-Timeout-Ms, X-Request-Timeout-Ms:
//     milliseconds
//   - X-Stainless-Timeout, which the SDKs of OpenAI and Anthropic send: seconds
//
// A negative or malformed value is ignored, and a value that is too long for a
// [time.Duration] is the longest one. A time of 0 is over already, except from
// Envoy, where it means no limit, and from those SDKs, where it means less than a
// second: it is ignored there.
func TimeLeft(h http.Header) (time.Duration, bool) {
	_, d, ok := shortestTimeout(h, timeoutHeaders[:])
	return d, ok
}

// TotalTimeLeft is [TimeLeft] for the whole exchange, the body of the answer included.
// X-Stainless-Timeout does not count: the SDKs that send it stop to wait when the
// answer begins.
func TotalTimeLeft(h http.Header) (time.Duration, bool) {
	_, d, ok := shortestTimeout(h, timeoutHeaders[:len(timeoutHeaders)-1])
	return d, ok
}

// shortestTimeout also returns which header said so.
func shortestTimeout(h http.Header, headers []timeoutHeader) (name string, shortest time.Duration, ok bool) {
	for _, t := range headers {
		for _, v := range h[t.name] {
			if d, stated := t.parse(strings.TrimSpace(v)); stated && (!ok || d < shortest) {
				name, shortest, ok = t.name, d, true
			}
		}
	}
	return name, shortest, ok
}

func milliseconds(v string) (time.Duration, bool) { return parseTimeout(v, time.Millisecond) }

func seconds(v string) (time.Duration, bool) { return parseTimeout(v, time.Second) }

// parseTimeout reads a number with at most one point.
func parseTimeout(v string, unit time.Duration) (time.Duration, bool) {
	n, ok := parseNumber(v)
	if !ok {
		return 0, false
	}
	ns := math.Round(n * float64(unit))
	if ns >= math.MaxInt64 {
		return math.MaxInt64, true
	}
	return time.Duration(ns), true
}

func unlessZero(parse func(string) (time.Duration, bool)) func(string) (time.Duration, bool) {
	return func(v string) (time.Duration, bool) {
		d, ok := parse(v)
		return d, ok && d > 0
	}
}

// grpcUnits are the units of Grpc-Timeout, the finest first.
var grpcUnits = [...]struct {
	letter byte
	unit   time.Duration
}{
	{'n', time.Nanosecond},
	{'u', time.Microsecond},
	{'m', time.Millisecond},
	{'S', time.Second},
	{'M', time.Minute},
	{'H', time.Hour},
}

const grpcDigits = 8 // at most

func parseGRPCTimeout(v string) (time.Duration, bool) {
	digits := len(v) - 1
	if digits < 1 || digits > grpcDigits {
		return 0, false
	}
	for _, u := range grpcUnits {
		if v[digits] != u.letter {
			continue
		}
		n, err := strconv.ParseUint(v[:digits], 10, 32)
		if n > uint64(math.MaxInt64/u.unit) {
			return math.MaxInt64, true
		}
		return time.Duration(n) * u.unit, err == nil
	}
	return 0, false
}

// formatBudget returns what the named header says when its sender has d left to
// wait: at most d, in the precision of the header. What is less than the header
// can say is said as the least that it can, since a 0 is no limit to some. It
// returns false for a name that [TimeLeft] does not read, and for a time that is
// over: such a request need not be sent.
func formatBudget(name string, d time.Duration) (string, bool) {
	if d <= 0 {
		return "", false
	}
	ms := max(d.Milliseconds(), 1)
	switch name {
	case headerGRPCTimeout:
		return formatGRPCTimeout(d), true
	case headerConnectTimeout:
		return strconv.FormatInt(min(ms, 1e10-1), 10), true // the protocol allows ten digits
	case headerEnvoyTimeout, headerRequestTimeout:
		return strconv.FormatInt(ms, 10), true
	case headerStainlessTimeout:
		return decimal.Format(float64(ms) / 1e3), true
	}
	return "", false
}

// formatGRPCTimeout uses the finest unit that has enough digits. In hours, every
// duration has.
func formatGRPCTimeout(d time.Duration) string {
	const most = 1e8 - 1 // in eight digits
	i := 0
	for d/grpcUnits[i].unit > most {
		i++
	}
	u := grpcUnits[i]
	return strconv.FormatInt(int64(d/u.unit), 10) + string(u.letter)
}

// restateDeadline writes what is left into the headers that state a deadline already, and
// reports whether there are any. A number of whole seconds stays one.
func restateDeadline(h http.Header, left time.Duration, limited bool) (any bool) {
	for _, t := range timeoutHeaders {
		stated := h[t.name]
		if len(stated) == 0 {
			continue
		}
		if _, _, ok := shortestTimeout(h, []timeoutHeader{t}); !ok {
			continue // no deadline to us, and not ours to change
		}
		any = true
		v, ok := formatBudget(t.name, left)
		switch {
		case !ok || !limited:
			h.Del(t.name)
			continue
		case t.name == headerStainlessTimeout && !strings.Contains(stated[0], "."):
			v = strconv.FormatInt(max(int64(left/time.Second), 1), 10)
		}
		h[t.name] = []string{v}
	}
	return any
}

// retryHeaders are the headers which say that a request was sent before. Those
// that count attempts start at 1.
var retryHeaders = [...]struct {
	name  string
	first uint64 // what a request says that was not sent before
}{
	{"X-Tideover-Attempt", 1},
	{"X-Envoy-Attempt-Count", 1},
	{"X-Stainless-Retry-Count", 0},
	{"Grpc-Previous-Rpc-Attempts", 0},
}

// PriorRetries returns how often the sender of a request has repeated it before,
// from the headers of the request: X-Tideover-Attempt and X-Envoy-Attempt-Count,
// which count attempts, X-Stainless-Retry-Count and Grpc-Previous-Rpc-Attempts,
// which count retries. The largest counts; what makes no sense is ignored.
func PriorRetries(h http.Header) int {
	most := uint64(0)
	for _, header := range retryHeaders {
		for _, v := range h[header.name] {
			// What is out of range is the largest number there is, with an error.
			n, err := strconv.ParseUint(strings.TrimSpace(v), 10, 31)
			if err != nil && n == 0 {
				continue
			}
			most = max(most, max(n, header.first)-header.first)
		}
	}
	return int(most)
}

// inboundKey is the key of the prior retries in a context.
type inboundKey struct{}

// WithPriorRetries returns a context under which requests are sent on behalf of
// one that had been sent n times before. Its sender retries already,
// so a [Transport] makes fewer attempts of its own: layers that all retry
// multiply. A [Deadline] does it for the requests that it serves.
func WithPriorRetries(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, inboundKey{}, max(n, 0))
}

// inboundRetries returns what WithPriorRetries has put into the context.
func inboundRetries(ctx context.Context) int {
	n, _ := ctx.Value(inboundKey{}).(int)
	return n
}
