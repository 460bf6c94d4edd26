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

	mu      sync.Mutex
	byRoute map[string][]*throttle
	count   int
	held    map[*key]*throttle // of keys with which all requests wait, because of their accounts
}

// throttle is one of them.
type throttle struct {
	key    *key
	scope  scope
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
	return len(t.byRoute[route]) > 0
}

// find returns the wait of the key and the scope, or nil. It needs the lock.
func (t *throttles) find(k *key, s scope, now time.Duration) *throttle {
	for _, x := range t.byRoute[s.route] {
		if x.key == k && x.scope == s {
			if now < x.until {
				return x
			}
			t.remove(x)
			return nil
		}
	}
	return nil
}

// remove takes a wait out. It needs the lock.
func (t *throttles) remove(x *throttle) {
	list := t.byRoute[x.scope.route]
	i := slices.Index(list, x)
	if i < 0 {
		return
	}
	t.count--
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(t.byRoute, x.scope.route)
	} else {
		t.byRoute[x.scope.route] = list
	}
}

// all returns the waits that are not over. It needs the lock.
func (t *throttles) all(now time.Duration) (list []*throttle) {
	for _, some := range t.byRoute {
		list = append(list, some...)
	}
	return slices.DeleteFunc(list, func(x *throttle) bool {
		if now < x.until {
			return false
		}
		t.remove(x)
		return true
	})
}

// waitLeft returns how long requests of the scope have to wait with the key, and how long
// it is until one of them may go: a probe may go before the wait is over. Both are 0 if
// they need not wait.
func (t *throttles) waitLeft(k *key, s scope) (wait, next time.Duration) {
	if !t.active() {
		return 0, 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := clock.Now()
	if x := t.find(k, s, now); x != nil {
		wait, next = x.until-now, max(min(x.probe, x.until)-now, 0)
	}
	if x := t.holdOf(k, now); x != nil {
		wait, next = max(wait, x.until-now), max(next, x.until-now)
	}
	return wait, next
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
	x := t.find(k, s, now)
	switch {
	case t.holdOf(k, now) != nil:
		return false, false
	case x == nil:
		return true, false
	case now < x.probe:
		return false, false
	}
	x.probe = clock.Later(now, probeEvery)
	return true, true
}

// reasonOf returns why requests of the scope have to wait with the key, "" if they need
// not.
func (t *throttles) reasonOf(k *key, s scope) string {
	if !t.active() {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := clock.Now()
	if x := t.holdOf(k, now); x != nil {
		return x.reason
	}
	if x := t.find(k, s, now); x != nil {
		return x.reason
	}
	return ""
}

// giveBack lets another request probe, because the one that was let through was not
// sent, or not answered because of its caller.
func (t *throttles) giveBack(k *key, s scope) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := clock.Now()
	if x := t.find(k, s, now); x != nil {
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
	x := t.find(k, s, now)
	if x == nil {
		if t.count >= maxThrottles {
			t.makeRoom(now)
		}
		x = &throttle{key: k, scope: s, since: time.Now()}
		if t.byRoute == nil {
			t.byRoute = map[string][]*throttle{}
		}
		t.byRoute[s.route] = append(t.byRoute[s.route], x)
		t.count++
	} else if !probed && until < x.until {
		return
	}
	x.reason, x.until, x.probe = reason, until, probe
	t.latest.Store(max(t.latest.Load(), int64(until)))
}

// makeRoom takes out what is over, and the wait that is over first if that is not
// enough: its requests find out again. It needs the lock.
func (t *throttles) makeRoom(now time.Duration) {
	list := t.all(now)
	if len(list) >= maxThrottles {
		t.remove(slices.MinFunc(list, func(a, b *throttle) int { return cmp.Compare(a.until, b.until) }))
	}
}

// open ends the wait of the key and the scope.
func (t *throttles) open(k *key, s scope) (was bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.find(k, s, clock.Now())
	if x != nil {
		t.remove(x)
	}
	return x != nil
}

// clear ends all waits.
func (t *throttles) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byRoute, t.count, t.held = nil, 0, nil
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
		k := other(x.key)
		if k == nil {
			continue
		}
		own := *x
		own.key = k
		if t.byRoute == nil {
			t.byRoute = map[string][]*throttle{}
		}
		t.byRoute[own.scope.route] = append(t.byRoute[own.scope.route], &own)
		t.count++
		t.latest.Store(max(t.latest.Load(), int64(own.until)))
	}
}

// throttled returns the waits as they are shown, those of the same scope together, and
// the scope for which all keys have been waiting longest, with the time since when: zero
// if there is none.
func (p *keyPool) throttled(now time.Time, redact func(string) string) (list []Throttle, blocked scope, since time.Time) {
	list = []Throttle{}
	if !p.throttles.active() {
		return list, scope{}, time.Time{}
	}
	p.throttles.mu.Lock()
	at := clock.Now()
	all, held := p.throttles.all(at), map[*key]time.Time{}
	for _, k := range p.keys {
		if x := p.throttles.holdOf(k, at); x != nil {
			held[k] = x.since
			until := now.Add(x.until - at)
			list = append(list, Throttle{Key: k.name, Account: k.account.name, Reason: redact(x.detail), Since: x.since, Until: until, NextProbe: until})
		}
	}
	for _, x := range all {
		one := Throttle{
			Key: x.key.name, Route: redact(x.scope.route), Model: redact(x.scope.model), Reason: x.reason,
			Since: x.since, Until: now.Add(x.until - at), NextProbe: now.Add(max(min(x.probe, x.until)-at, 0)),
		}
		list = append(list, one)
	}
	p.throttles.mu.Unlock()
	slices.SortFunc(list, func(a, b Throttle) int {
		return cmp.Or(cmp.Compare(a.Route, b.Route), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Key, b.Key))
	})
	closed, began := map[scope][]*key{}, map[scope]time.Time{}
	closes := func(s scope, k *key, since time.Time) {
		if slices.Contains(closed[s], k) {
			return
		}
		if closed[s] = append(closed[s], k); since.After(began[s]) {
			began[s] = since
		}
	}
	for _, x := range all {
		closes(x.scope, x.key, x.since)
	}
	for k, since := range held {
		closes(scope{}, k, since)
		for s := range closed {
			closes(s, k, since)
		}
	}
	open := 0 // keys that are not rejected
	for _, k := range p.keys {
		if !k.isRejected() {
			open++
		}
	}
	for s, list := range closed {
		if n := len(list); n >= max(open, 1) && (since.IsZero() || began[s].Before(since) || began[s].Equal(since) && s.String() < blocked.String()) {
			blocked, since = s, began[s]
		}
	}
	return list, scope{redact(blocked.route), redact(blocked.model)}, since
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
