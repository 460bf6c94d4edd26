package gateway

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/internal/httpheader"
	"github.com/tideover/tideover/retryhttp"
)

// Accounts receives what providers state about the accounts of keys, for other programs
// that use the same accounts. The gateway calls its methods while it serves a request, so
// they must not block.
type Accounts interface {
	// Limited reports a limit of more than a minute that a provider stated in the response
	// to a request with a key.
	Limited(l KeyLimit)

	// Worked reports that the limit with this serial has ended: a request that was sent
	// after the limit was set has succeeded.
	Worked(account string, serial int64)

	// Used reports how much of the account's quotas is used.
	Used(account string, windows []QuotaWindow)
}

// KeyLimit is a limit that a provider stated in the response to a request with a key.
type KeyLimit struct {
	Account       string
	Provider, Key string
	Route         string // only a success of this route shows that the limit is over; "" means a success of any route
	Until         time.Time
	Why           string // a short reason, such as "429"
}

// AccountLimit is a limit of an account that [Gateway.SetAccountLimit] sets.
type AccountLimit struct {
	Serial int64     // a later limit has a higher serial
	Until  time.Time // the zero Time means an unknown end: its keys are still used
	Why    string    // a reason for the status

	// Provider and Key name the key of this gateway whose request got the limit from the
	// provider; both are "" if it was none of its keys. This key is not blocked as a whole:
	// only its requests for the limited route and model wait.
	Provider, Key string
	Route         string // see [KeyLimit]
}

// minAccountLimit is the wait above which a limit counts as one of the account. A shorter
// wait is treated as backoff.
const minAccountLimit = time.Minute

// sharedAccount is an account that keys of any provider may share.
type sharedAccount struct {
	name  string
	limit atomic.Pointer[knownLimit] // nil means no known limit
}

// knownLimit is the limit of an account, and what the gateway has recorded about it.
type knownLimit struct {
	AccountLimit
	since time.Duration // reading of the clock when the gateway learned of it
	ended atomic.Bool   // the gateway has reported to Accounts that the limit has ended
}

// set replaces the limit, and reports whether it differs from the one before.
func (s *sharedAccount) set(l *AccountLimit) (changed bool) {
	known := s.limit.Load()
	if known == nil && l == nil || known != nil && l != nil && known.sameAs(l) {
		return false
	}
	var next *knownLimit
	if l != nil {
		next = &knownLimit{AccountLimit: *l, since: clock.Now()}
		if known != nil && known.Serial == l.Serial {
			next.since = known.since
			next.ended.Store(known.ended.Load())
		}
	}
	s.limit.Store(next)
	return true
}

// sameAs reports whether the limits are the same. It ignores a difference of less than a
// second between their ends, because the callers of SetAccountLimit compute the end anew
// each time.
func (k *knownLimit) sameAs(l *AccountLimit) bool {
	return k.Serial == l.Serial && k.Until.IsZero() == l.Until.IsZero() && k.Until.Sub(l.Until).Abs() < time.Second &&
		k.Provider == l.Provider && k.Key == l.Key
}

// applyAccount makes the keys of the account wait if it is limited, and otherwise ends
// their wait. It reports whether it ended the wait of a key.
func (p *keyPool) applyAccount(account *sharedAccount, provider string) (freed bool) {
	l := account.limit.Load()
	for _, k := range p.keys {
		switch {
		case k.account != account:
		case l == nil || l.Until.IsZero() || l.Provider == provider && l.Key == k.name:
			freed = p.throttles.open(waiting{key: k}) || freed
		default:
			p.throttles.hold(k, time.Until(l.Until), "account "+account.name+" is limited", l.Why)
		}
	}
	return freed
}

// hold makes all requests with the key wait, without a probe before the end.
func (t *throttles) hold(k *key, wait time.Duration, reason, detail string) {
	until := clock.Later(clock.Now(), wait)
	t.mu.Lock()
	defer t.mu.Unlock()
	x := cmp.Or(t.waits[waiting{key: k}], &throttle{waiting: waiting{key: k}, since: time.Now()})
	x.reason, x.detail, x.until, x.probe = reason, detail, until, until
	t.set(x)
}

// beganBefore reports whether there is a wait for requests of the scope with the key that
// began at or before this time, in Unix nanoseconds.
func (t *throttles) beganBefore(k *key, s scope, at int64) bool {
	one, _ := t.waitsOf(k, s, clock.Now())
	return one.key != nil && one.since.UnixNano() <= at
}

// report reports what the answer to an attempt states about the account.
func (s *sharedAccount) report(a *attempt, resp *http.Response) {
	if windows := quotaWindows(resp.Header, time.Now()); len(windows) > 0 {
		a.p.gateway.options.Accounts.Used(s.name, windows)
	}
	switch res := &a.result; {
	case res.kind == succeeded && res.code < http.StatusBadRequest:
		s.worked(a)
	case res.kind == keyThrottled, res.kind == keyRejected && res.closesScope && (res.quotaGone || res.code == http.StatusPaymentRequired):
		s.limited(a, resp.Header)
	}
}

// worked reports that the account's limit has ended, if the attempt shows it.
func (s *sharedAccount) worked(a *attempt) {
	if !isCounted(a.req.Method, a.request.path) {
		return
	}
	a.key.worked.Store(time.Now().UnixNano())
	k := s.limit.Load()
	if k == nil || a.sent < k.since || k.Route != "" && k.Route != a.request.route || k.ended.Swap(true) {
		return
	}
	a.p.gateway.options.Accounts.Worked(s.name, k.Serial)
}

// isCounted reports whether a request uses the quota of an account. Lists of
// models and counts of tokens do not.
func isCounted(method, path string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions &&
		!strings.HasSuffix(path, "/count_tokens") && !strings.HasSuffix(path, ":countTokens")
}

// limited reports a limit if it seems to apply to the whole account. If the headers
// do not show that it does, the wait may apply to a route or a model only. It is then
// ignored if the key has succeeded with another route or model since the wait began.
func (s *sharedAccount) limited(a *attempt, h http.Header) {
	now := time.Now()
	a.request.readModel(a.req)
	used := usedUpReset(h, now)
	subscribed, all := subscriptionReset(h, now)
	wait, whole := max(a.result.wait, used), a.result.quotaGone || all || used > minAccountLimit
	if subscribed > 0 && !all {
		wait = used // the rest of the wait applies to one model
	}
	switch {
	case wait <= minAccountLimit:
		return
	case whole:
	case a.p.keys.throttles.beganBefore(a.key, a.request.scope(), a.key.worked.Load()):
		return
	}
	until := now.Add(wait)
	if k := s.limit.Load(); k != nil && !k.Until.IsZero() && until.Sub(k.Until) < minAccountLimit && !k.ended.Load() {
		return // the limit is already known
	}
	limit := KeyLimit{Account: s.name, Provider: a.p.spec.Name, Key: a.key.name, Until: until, Why: a.result.why}
	if whole {
		limit.Route = a.request.route
	}
	a.p.gateway.options.Accounts.Limited(limit)
}

// QuotaWindow is the used part of a quota for a period of time.
type QuotaWindow struct {
	Name   string  // such as "5-hour", or "requests" if the period is unknown
	Used   float64 // percent
	Resets time.Time
	Long   bool // the period is known to be hours or longer; otherwise it is at least the time until Resets
}

// subscription has the quota windows of a subscription, and the response headers in which
// Anthropic's API states them. The names of the headers are in canonical form.
var subscription = []struct{ name, used, reset, status string }{
	{"5-hour", "Anthropic-Ratelimit-Unified-5h-Utilization", "Anthropic-Ratelimit-Unified-5h-Reset", "Anthropic-Ratelimit-Unified-5h-Status"},
	{"weekly", "Anthropic-Ratelimit-Unified-7d-Utilization", "Anthropic-Ratelimit-Unified-7d-Reset", "Anthropic-Ratelimit-Unified-7d-Status"},
}

// quotaWindows returns the quotas that the headers state. It omits a quota without a known
// reset.
func quotaWindows(h http.Header, now time.Time) (list []QuotaWindow) {
	for i := range subscription {
		w := &subscription[i]
		used, ok := fraction(h[w.used])
		if at := reset(h, w.reset, now); ok && at != nil {
			list = append(list, QuotaWindow{Name: w.name, Used: 100 * used, Resets: *at, Long: true})
		}
	}
	for _, header := range httpheader.RateLimits {
		left, ok := count(h[header.Remaining])
		limit, known := count(h[header.Limit])
		if !ok || !known || limit == 0 {
			continue
		}
		if at := reset(h, header.Reset, now); at != nil {
			used := 100 * float64(max(limit-left, 0)) / float64(limit)
			list = append(list, QuotaWindow{Name: header.Name, Used: used, Resets: *at})
		}
	}
	return list
}

// fraction reads the used part of a quota: 1 means all. It may be above 1.
func fraction(values []string) (float64, bool) {
	if len(values) == 0 {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(values[0]), 64)
	return f, err == nil && f >= 0 && f <= 100 // the comparisons are false for NaN
}

// rejected is the status of a window that is used up.
const rejected = "rejected"

// subscriptionReset returns how long until a used-up subscription may be used again, as
// the headers state it; 0 if they do not. whole is false if only one model is used up.
// If several windows are used up, the latest reset counts.
func subscriptionReset(h http.Header, now time.Time) (wait time.Duration, whole bool) {
	later := func(name string) {
		if at := reset(h, name, now); at != nil {
			wait = max(wait, at.Sub(now))
		}
	}
	for i := range subscription {
		if h.Get(subscription[i].status) == rejected {
			whole = true
			later(subscription[i].reset)
		}
	}
	if h.Get("Anthropic-Ratelimit-Unified-Status") == rejected {
		switch h.Get("Anthropic-Ratelimit-Unified-Representative-Claim") {
		case "", "five_hour", "seven_day":
			whole = true
		}
		later("Anthropic-Ratelimit-Unified-Reset")
	}
	return wait, whole && wait > 0
}

// rateLimits are the rate limits that the responses of a provider have stated.
type rateLimits struct {
	mu    sync.Mutex
	known map[[2]string]Quota // by key and name
}

// read records the limits of the key that the headers of a response state.
func (q *rateLimits) read(key string, h http.Header, now time.Time) {
	for _, header := range httpheader.RateLimits {
		remaining, ok := count(h[header.Remaining])
		if !ok {
			continue
		}
		one := Quota{Name: header.Name, Key: key, Remaining: remaining, Reset: reset(h, header.Reset, now)}
		one.Limit, _ = count(h[header.Limit])
		q.mu.Lock()
		put(&q.known, [2]string{key, header.Name}, one)
		q.mu.Unlock()
	}
}

// count reads a number. If the value is a list of limits, it reads the first.
func count(values []string) (int64, bool) {
	if len(values) == 0 {
		return 0, false
	}
	v, _, _ := strings.Cut(values[0], ",")
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	return n, err == nil && n >= 0
}

// reset returns when a limit resets, or nil. The header may have any form that
// Retry-After may have.
func reset(h http.Header, name string, now time.Time) *time.Time {
	v := h.Get(name)
	if v == "" {
		return nil
	}
	d, ok := retryhttp.ServerDelay(http.Header{"Retry-After": {v}, "Date": h["Date"]}, now)
	if !ok || d > 366*24*time.Hour {
		return nil
	}
	return new(now.Add(d))
}

// list returns the known limits of the keys. It drops limits that have been reset since,
// and limits of keys that no longer exist.
func (q *rateLimits) list(now time.Time, keys []*key) []Quota {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := []Quota{}
	for at, one := range q.known {
		gone := !slices.ContainsFunc(keys, func(k *key) bool { return k.name == one.Key })
		if gone || one.Reset != nil && now.After(*one.Reset) {
			delete(q.known, at)
			continue
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Quota) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Name, b.Name))
	})
	return list
}
