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

// The headers in which a client states how long it will wait.
const (
	headerGRPCTimeout      = "Grpc-Timeout"
	headerConnectTimeout   = "Connect-Timeout-Ms"
	headerEnvoyTimeout     = "X-Envoy-Upstream-Rq-Timeout-Ms"
	headerStainlessTimeout = "X-Stainless-Timeout"
	headerRequestTimeout   = "X-Request-Timeout-Ms"
)

// timeoutHeader is a header that states a timeout, with the function that reads it.
type timeoutHeader struct {
	name  string
	parse func(string) (time.Duration, bool)
}

// timeoutHeaders has all timeout headers. The last one limits the time until the answer
// begins, the others limit the time until it ends.
var timeoutHeaders = [...]timeoutHeader{
	{headerGRPCTimeout, parseGRPCTimeout},
	{headerConnectTimeout, milliseconds},
	{headerRequestTimeout, milliseconds},
	// To Envoy, 0 means no limit. The JavaScript SDKs truncate to whole seconds, so
	// they send 0 for any timeout below a second. Both zeros are ignored.
	{headerEnvoyTimeout, unlessZero(milliseconds)},
	{headerStainlessTimeout, unlessZero(seconds)},
}

// TimeLeft returns how long the client will wait for the answer,
// from the headers of its request. The shortest of these counts:
//
//   - Grpc-Timeout: up to eight digits and a unit, one of H M S m u n
//   - Connect-Timeout-Ms, X-Envoy-Upstream-Rq-Timeout-Ms, X-Request-Timeout-Ms:
//     milliseconds
//   - X-Stainless-Timeout, which the SDKs of OpenAI and Anthropic send: seconds
//
// A negative or malformed value is ignored, and a value that is too long for a
// [time.Duration] becomes the longest one. A value of 0 means that no time is left, with
// two exceptions, where it is ignored: from Envoy it means no limit, and from the SDKs
// less than a second.
func TimeLeft(h http.Header) (time.Duration, bool) {
	_, d, ok := shortestTimeout(h, timeoutHeaders[:])
	return d, ok
}

// TotalTimeLeft is [TimeLeft] for the whole exchange, including the body of the answer.
// It ignores X-Stainless-Timeout, because the SDKs that send it limit only the time
// until the answer begins.
func TotalTimeLeft(h http.Header) (time.Duration, bool) {
	_, d, ok := shortestTimeout(h, timeoutHeaders[:len(timeoutHeaders)-1])
	return d, ok
}

// shortestTimeout returns the shortest timeout of the headers and the name of the header
// that states it.
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

// parseTimeout reads a number with at most one decimal point.
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

const grpcDigits = 8 // the protocol's maximum

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

// formatBudget returns the value of the named header for a client that will wait for
// another d: at most d, in the precision of the header. A d below that precision is
// written as the smallest value above 0, because some servers read 0 as no limit. It
// returns false for a name that [TimeLeft] does not know, and if d is 0 or less: such
// a request need not be sent.
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

// formatGRPCTimeout uses the smallest unit with which d fits into eight digits. Every
// duration fits in hours.
func formatGRPCTimeout(d time.Duration) string {
	const most = 1e8 - 1 // greatest number of eight digits
	i := 0
	for d/grpcUnits[i].unit > most {
		i++
	}
	u := grpcUnits[i]
	return strconv.FormatInt(int64(d/u.unit), 10) + string(u.letter)
}

// restateDeadline updates the timeout headers that the request already has, and
// reports whether there are any. It keeps a number of whole seconds whole. If limited is
// false, it removes the headers.
func restateDeadline(h http.Header, left time.Duration, limited bool) (any bool) {
	for _, t := range timeoutHeaders {
		stated := h[t.name]
		if len(stated) == 0 {
			continue
		}
		if _, _, ok := shortestTimeout(h, []timeoutHeader{t}); !ok {
			continue // not readable to us, so we do not change it
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

// retryHeaders are the headers that state how often a request was sent before. Those
// that count attempts start at 1.
var retryHeaders = [...]struct {
	name  string
	first uint64 // the value of a request that was not sent before
}{
	{"X-Tideover-Attempt", 1},
	{"X-Envoy-Attempt-Count", 1},
	{"X-Stainless-Retry-Count", 0},
	{"Grpc-Previous-Rpc-Attempts", 0},
}

// PriorRetries returns how often the client has sent a request before,
// from the headers of the request: X-Tideover-Attempt and X-Envoy-Attempt-Count,
// which count attempts, X-Stainless-Retry-Count and Grpc-Previous-Rpc-Attempts,
// which count retries. The largest counts; invalid values are ignored.
func PriorRetries(h http.Header) int {
	most := uint64(0)
	for _, header := range retryHeaders {
		for _, v := range h[header.name] {
			// For a number out of range, ParseUint returns the largest number and an error.
			n, err := strconv.ParseUint(strings.TrimSpace(v), 10, 31)
			if err != nil && n == 0 {
				continue
			}
			most = max(most, max(n, header.first)-header.first)
		}
	}
	return int(most)
}

// inboundKey is the context key of the number of prior retries.
type inboundKey struct{}

// WithPriorRetries returns a context for requests that are sent on behalf of a request
// that its client had already sent n times before. Under it, a [Transport] makes half
// the attempts if n is above 0, because retries of several layers multiply. A
// [Deadline] does this for the requests that it serves.
func WithPriorRetries(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, inboundKey{}, max(n, 0))
}

// inboundRetries returns the number that WithPriorRetries has stored in the context.
func inboundRetries(ctx context.Context) int {
	n, _ := ctx.Value(inboundKey{}).(int)
	return n
}
