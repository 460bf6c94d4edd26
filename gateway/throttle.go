package gateway

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/internal/httpheader"
)

const (
	// probeEvery is how often one request may test a long wait before it is over.
	probeEvery = time.Minute

	// maxThrottles is the greatest number of waits that a provider keeps. Callers choose
	// routes and models, so their number is not limited otherwise.
	maxThrottles = 256
)

// scope is what a wait applies to, for each key: requests of one
// route for one model. The model is empty if the request names none.
type scope struct{ route, model string }

// String returns the route, and the model if there is one.
func (s scope) String() string {
	if s.model == "" {
		return s.route
	}
	return s.route + ", model " + s.model
}

// throttles are the waits that a provider has asked for.
type throttles struct {
	latest atomic.Int64 // reading of the clock when the last of them ends; nearly always in the past

	mu    sync.Mutex
	waits map[waiting]*throttle
}

// waiting identifies the requests that have to wait: those of the scope that use the key.
// A zero scope means all requests that use the key, because its account is limited.
type waiting struct {
	key   *key
	scope scope
}

// throttle is a wait that applies to some requests.
type throttle struct {
	waiting
	reason string        // such as "429"
	detail string        // a longer reason, if known
	since  time.Time     // when the provider first asked for it
	until  time.Duration // reading of the clock when it ends
	probe  time.Duration // reading of the clock from which one request may probe before until
}

// active reports whether there may be a wait that is not over. It is a fast check.
func (t *throttles) active() bool {
	latest := t.latest.Load()
	return latest != 0 && int64(clock.Now()) < latest
}

// hasRoute reports whether any wait applies to the route, so that the model of a request
// matters.
func (t *throttles) hasRoute(route string) bool {
	if !t.active() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.waits {
		if w.scope.route == route {
			return true
		}
	}
	return false
}

// find returns the wait of the requests, or nil. The caller holds t.mu.
func (t *throttles) find(w waiting, now time.Duration) *throttle {
	x := t.waits[w]
	if x != nil && now >= x.until {
		delete(t.waits, w)
		return nil
	}
	return x
}

// all returns the waits that are not over, except those of accounts. The caller holds
// t.mu.
func (t *throttles) all(now time.Duration) (list []*throttle) {
	for w := range t.waits {
		if x := t.find(w, now); x != nil && w.scope != (scope{}) {
			list = append(list, x)
		}
	}
	return list
}

// waitsOf returns the wait for requests of the scope with the key, and the wait for all
// requests with the key. A zero throttle means no wait.
func (t *throttles) waitsOf(k *key, s scope, now time.Duration) (one, all throttle) {
	if !t.active() {
		return one, all
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.find(waiting{k, s}, now); x != nil {
		one = *x
	}
	if x := t.find(waiting{key: k}, now); x != nil {
		all = *x
	}
	return one, all
}

// waitLeft returns how long requests of the scope have to wait with the key, and how long
// until one of them may be sent as a probe, which may be earlier. Both are 0 if
// they need not wait.
func (t *throttles) waitLeft(k *key, s scope) (wait, next time.Duration) {
	now := clock.Now()
	one, all := t.waitsOf(k, s, now)
	return max(one.until-now, all.until-now, 0), max(min(one.probe, one.until)-now, all.until-now, 0)
}

// enter reports whether a request of the scope may be sent with the key now, and whether
// it is a probe.
func (t *throttles) enter(k *key, s scope) (ok, probe bool) {
	if !t.active() {
		return true, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := clock.Now()
	x := t.find(waiting{k, s}, now)
	switch {
	case t.find(waiting{key: k}, now) != nil:
		return false, false
	case x == nil:
		return true, false
	case now < x.probe:
		return false, false
	}
	x.probe = clock.Later(now, probeEvery)
	return true, true
}

// giveBack allows another request to probe, because the current probe was not sent, or
// its result is unknown.
func (t *throttles) giveBack(k *key, s scope) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := clock.Now()
	if x := t.find(waiting{k, s}, now); x != nil {
		x.probe = now
	}
}

// close makes requests wait that use the key in the scope. Meanwhile one request a minute is
// sent as a probe, but none before noProbeFor has passed. If the key waits already, the later
// end counts, unless probed is true: then the new wait replaces the old one.
func (t *throttles) close(k *key, s scope, wait, noProbeFor time.Duration, reason string, probed bool) {
	now := clock.Now()
	until := clock.Later(now, wait)
	probe := clock.Later(now, max(probeEvery, noProbeFor))
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.find(waiting{k, s}, now)
	if x == nil {
		t.makeRoom(now)
		x = &throttle{waiting: waiting{k, s}, since: time.Now()}
	} else if !probed && until < x.until {
		return
	}
	x.reason, x.until, x.probe = reason, until, probe
	t.set(x)
}

// set adds or replaces a wait. The caller holds t.mu.
func (t *throttles) set(x *throttle) {
	put(&t.waits, x.waiting, x)
	t.latest.Store(max(t.latest.Load(), int64(x.until)))
}

// makeRoom deletes the waits that are over. If there are still too many, it deletes the one
// that ends first; its requests will learn of the wait again. The caller holds t.mu.
func (t *throttles) makeRoom(now time.Duration) {
	if len(t.waits) < maxThrottles {
		return
	}
	if list := t.all(now); len(list) >= maxThrottles {
		first := slices.MinFunc(list, func(a, b *throttle) int { return cmp.Compare(a.until, b.until) })
		delete(t.waits, first.waiting)
	}
}

// open ends a wait, and reports whether there was one.
func (t *throttles) open(w waiting) (was bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was = t.find(w, clock.Now()) != nil
	delete(t.waits, w)
	return was
}

// clear ends all waits.
func (t *throttles) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waits = nil
	t.latest.Store(0)
}

// inherit copies the waits of keys that have a successor. other returns the successor of
// a key, or nil.
func (t *throttles) inherit(old *throttles, other func(*key) *key) {
	old.mu.Lock()
	list := old.all(clock.Now())
	old.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range list {
		own := *x
		if own.key = other(x.key); own.key != nil {
			t.set(&own)
		}
	}
}

// throttled returns the waits for the status. blocked is the scope for which all keys
// have been waiting the longest, and since is when that began; both are zero if there is no
// such scope.
func (p *keyPool) throttled(now time.Time, redact func(string) string) (list []Throttle, blocked scope, since time.Time) {
	list = []Throttle{}
	t := &p.throttles
	if !t.active() {
		return list, scope{}, time.Time{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at := clock.Now()
	usable := len(slices.DeleteFunc(slices.Clone(p.keys), (*key).isRejected))
	for w := range t.waits {
		x := t.find(w, at)
		if x == nil {
			continue
		}
		one := Throttle{
			Key: x.key.name, Route: redact(x.scope.route), Model: redact(x.scope.model), Reason: x.reason,
			Since: x.since, Until: now.Add(x.until - at), NextProbe: now.Add(max(min(x.probe, x.until)-at, 0)),
		}
		if x.scope == (scope{}) {
			one.Account, one.Reason = x.key.account.name, redact(x.detail)
		}
		list = append(list, one)
		n, began := p.waitingKeys(x.scope, at)
		if n >= max(usable, 1) && (since.IsZero() || began.Before(since) || began.Equal(since) && x.scope.String() < blocked.String()) {
			blocked, since = x.scope, began
		}
	}
	slices.SortFunc(list, func(a, b Throttle) int {
		return cmp.Or(cmp.Compare(a.Route, b.Route), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Key, b.Key))
	})
	return list, scope{redact(blocked.route), redact(blocked.model)}, since
}

// waitingKeys returns how many keys have to wait with requests of the scope, and when the
// last of them began to wait. The caller holds the lock of the throttles.
func (p *keyPool) waitingKeys(s scope, now time.Duration) (n int, began time.Time) {
	for _, k := range p.keys {
		x := cmp.Or(p.throttles.find(waiting{k, s}, now), p.throttles.find(waiting{key: k}, now))
		if x == nil {
			continue
		}
		if n++; x.since.After(began) {
			began = x.since
		}
	}
	return n, began
}

// usedUpReset returns how long until the last of the used-up limits of the account resets,
// as stated in the headers; 0 if they state none.
func usedUpReset(h http.Header, now time.Time) (wait time.Duration) {
	for _, header := range httpheader.RateLimits {
		if left, ok := count(h[header.Remaining]); !ok || left != 0 {
			continue
		}
		if at := reset(h, header.Reset, now); at != nil {
			wait = max(wait, at.Sub(now))
		}
	}
	return wait
}

// closeScope makes later requests wait if they have the same key, route and model as the
// attempt. resp is the response that throttled or rejected the attempt.
func (t *throttles) closeScope(a *attempt, resp *http.Response) {
	account := a.result.wait // how long the account must not be used
	if !a.result.quotaGone {
		now := time.Now()
		subscribed, _ := subscriptionReset(resp.Header, now)
		account = max(subscribed, usedUpReset(resp.Header, now))
	}
	a.request.readModel(a.req)
	t.close(a.key, a.request.scope(), a.result.wait, account, a.result.why, a.keyProbe)
}
