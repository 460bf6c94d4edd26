package gateway

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

const (
	// probeEvery is how often one request is let through before a long wait is over.
	probeEvery = time.Minute

	// maxThrottles is how many waits of a provider are remembered. Callers choose
	// routes and models, and could make up any number of them.
	maxThrottles = 256
)

// scope is the part of a provider that a wait is about, for each key: requests of one
// route for one model. The model is empty if the request names none.
type scope struct{ route, model string }

// String names the scope.
func (s scope) String() string {
	if s.model == "" {
		return s.route
	}
	return s.route + ", model " + s.model
}

// throttles are the waits that a provider asked for.
type throttles struct {
	latest atomic.Int64 // reading of the clock at which the last of them is over: nearly always in the past

	mu    sync.Mutex
	waits map[waiting]*throttle
}

// waiting are the requests that a wait is about: those of the scope with the key, or all
// requests with the key, because of its account, if the scope is zero.
type waiting struct {
	key   *key
	scope scope
}

// throttle is a wait.
type throttle struct {
	waiting
	reason string        // such as "429"
	detail string        // the reason at length, where it is known
	since  time.Time     // when the provider first asked for it
	until  time.Duration // reading of the clock
	probe  time.Duration // reading of the clock from which one request may go before that
}

// active reports whether any wait may not be over.
func (t *throttles) active() bool {
	latest := t.latest.Load()
	return latest != 0 && int64(clock.Now()) < latest
}

// hasRoute reports whether any wait is about the route, so that it matters which model
// a request is for.
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

// find returns the wait of the requests, or nil. It needs the lock.
func (t *throttles) find(w waiting, now time.Duration) *throttle {
	x := t.waits[w]
	if x != nil && now >= x.until {
		delete(t.waits, w)
		return nil
	}
	return x
}

// all returns the waits of scopes that are not over. It needs the lock.
func (t *throttles) all(now time.Duration) (list []*throttle) {
	for w := range t.waits {
		if x := t.find(w, now); x != nil && w.scope != (scope{}) {
			list = append(list, x)
		}
	}
	return list
}

// waitsOf returns the wait of requests of the scope with the key, and that of all requests with
// the key. What does not wait is zero.
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
// it is until one of them may go: a probe may go before the wait is over. Both are 0 if
// they need not wait.
func (t *throttles) waitLeft(k *key, s scope) (wait, next time.Duration) {
	now := clock.Now()
	one, all := t.waitsOf(k, s, now)
	return max(one.until-now, all.until-now, 0), max(min(one.probe, one.until)-now, all.until-now, 0)
}

// enter reports whether a request of the scope may go with the key, and whether it is
// the one that finds out for all.
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

// giveBack lets another request probe, because the one that was let through was not
// sent, or not answered because of its caller.
func (t *throttles) giveBack(k *key, s scope) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := clock.Now()
	if x := t.find(waiting{k, s}, now); x != nil {
		x.probe = now
	}
}

// close makes requests of the scope wait with the key. Meanwhile one request a minute
// probes whether it still has to wait, but none within noProbeFor. Of two waits the later
// one holds, unless a probe brought the newer.
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

// set adds the wait, or replaces it. It needs the lock.
func (t *throttles) set(x *throttle) {
	put(&t.waits, x.waiting, x)
	t.latest.Store(max(t.latest.Load(), int64(x.until)))
}

// makeRoom takes out what is over, and the wait that is over first if that is not
// enough: its requests find out again. It needs the lock.
func (t *throttles) makeRoom(now time.Duration) {
	if len(t.waits) < maxThrottles {
		return
	}
	if list := t.all(now); len(list) >= maxThrottles {
		first := slices.MinFunc(list, func(a, b *throttle) int { return cmp.Compare(a.until, b.until) })
		delete(t.waits, first.waiting)
	}
}

// open ends the wait, and reports whether there was one.
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

// inherit takes over the waits of keys that another pool has, too. other returns the
// key that has taken the place of one.
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

// throttled returns the waits as they are shown, those of the same scope together, and
// the scope for which all keys have been waiting longest, with the time since when: zero
// if there is none.
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

// waitingKeys returns how many keys wait with requests of the scope, and when the last of
// them began to. It needs the lock of the throttles.
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

// accountReset returns how long it is until the account may be used again, as the answer
// states it; 0 if it does not.
func accountReset(h http.Header, now time.Time) time.Duration {
	wait, _ := subscriptionReset(h, now)
	return max(wait, usedUpReset(h, now))
}

// usedUpReset returns how long it is until the latest of the limits begins anew of
// which the account has nothing left, as the answer states it; 0 if it states none.
func usedUpReset(h http.Header, now time.Time) (wait time.Duration) {
	for _, header := range rateLimitHeaders {
		if left, ok := count(h[header.remaining]); !ok || left != 0 {
			continue
		}
		if at := reset(h, header.reset, now); at != nil {
			wait = max(wait, at.Sub(now))
		}
	}
	return wait
}

// throttleScope makes requests of the attempt's route and model wait with its key.
func (a *attempt) throttleScope(resp *http.Response) {
	account := a.result.wait
	if !a.result.quotaGone {
		account = accountReset(resp.Header, time.Now())
	}
	a.request.readModel(a.req)
	a.p.keys.throttles.close(a.key, a.request.scope(), a.result.wait, account, a.result.why, a.keyProbe)
}
