package gateway

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/internal/secret"
)

// How long a key is avoided if its server does not say.
const (
	defaultThrottle = time.Second      // 429: the policy's delays do the rest
	avoidRejected   = 5 * time.Minute  // 401, 403: an operator has to replace it
	avoidUnpaid     = 10 * time.Minute // 402, and quota that is gone
)

// What a target is called that is none of our keys.
const (
	callersKey = "caller" // each caller brings its own
	noKey      = "none"
)

// keyPool holds the keys of a provider. All requests to the provider share it, and what
// is known of its keys: those that asked for the provider, and those for which it is a
// fallback.
type keyPool struct {
	keys       []*key
	own        bool // the keys are ours, and not those of callers
	pool       *health.Pool
	avoidUntil atomic.Int64 // reading of the clock up to which a key is avoided

	throttles throttles  // what its server asked to wait for
	mu        sync.Mutex // held while keys are closed, or let in again
}

// key is one key of a provider, or stands for the keys of its callers.
type key struct {
	name  string
	value secret.String // empty if it is none of ours
	stats *keyStats

	account *sharedAccount // whose limit it shares; nil means none
	worked  atomic.Int64   // when it last succeeded, since 1970; only of a key with an account

	rejectedUntil atomic.Int64 // reading of the clock up to which it is avoided because it was rejected

	mu        sync.Mutex
	reason    string // what closed it last
	avoidedAt time.Time
}

// newKeyPool makes the keys of a provider. account returns the account of a name.
func newKeyPool(s *Spec, t *stats, account func(name string) *sharedAccount) (*keyPool, error) {
	p := &keyPool{own: s.ours()}
	for _, k := range s.Keys {
		p.keys = append(p.keys, &key{name: k.Name, value: k.Value.value, stats: t.key(k.Name), account: account(k.Account)})
	}
	if len(p.keys) == 0 {
		name := callersKey
		if s.Keyless {
			name = noKey
		}
		p.keys = append(p.keys, &key{name: name, stats: t.key(name)})
	}
	targets := make([]health.Target, len(p.keys))
	for i, k := range p.keys {
		targets[i] = health.Target{Name: k.name, Provider: "it"} // the same for all keys
	}
	// Failures of the server eject no key: the provider's gate knows better.
	var err error
	p.pool, err = health.NewPool(health.PoolConfig{Failures: math.MaxInt}, targets)
	return p, err
}

// same reports whether the other pool has the same keys.
func (p *keyPool) same(o *keyPool) bool {
	if p.own != o.own || len(p.keys) != len(o.keys) {
		return false
	}
	for i, k := range p.keys {
		if other := o.keys[i]; k.name != other.name || k.account != other.account || !k.value.Equal(other.value.Reveal()) {
			return false
		}
	}
	return true
}

// inherit takes over what is known of keys that are in the old pool, too.
func (p *keyPool) inherit(old *keyPool) {
	for i, st := range old.pool.Status() {
		was := old.keys[i]
		if k := p.successor(was); k != nil && st.Closed > 0 {
			reason, _ := was.lastReason()
			p.avoid(k, st.Closed, reason)
		}
	}
	p.throttles.inherit(&old.throttles, p.successor)
}

// successor returns the same key as one of another pool, or nil.
func (p *keyPool) successor(was *key) *key {
	if k := p.named(was.name); k != nil && k.value.Equal(was.value.Reveal()) {
		return k
	}
	return nil
}

func (p *keyPool) named(name string) *key {
	for _, k := range p.keys {
		if k.name == name {
			return k
		}
	}
	return nil
}

// avoid makes the key be avoided for so long, because it was rejected.
func (p *keyPool) avoid(k *key, wait time.Duration, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k.mu.Lock()
	k.reason, k.avoidedAt = reason, time.Now()
	k.mu.Unlock()
	until := int64(clock.Later(clock.Now(), wait))
	k.rejectedUntil.Store(max(k.rejectedUntil.Load(), until))
	p.pool.Cool(k.name, wait)
	p.avoidUntil.Store(max(p.avoidUntil.Load(), until))
}

// lastReason returns what closed the key last, and when.
func (k *key) lastReason() (reason string, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reason, k.avoidedAt
}

// pick chooses a key for a request of the scope. After a call whose key was refused it
// is one that the same request has not been to; ok is false if there is none. As a last
// resort it chooses a key that is avoided. probe says that the key still has to wait, and
// that this request finds out whether it must.
func (p *keyPool) pick(refused *health.Call, last bool, s scope) (call health.Call, k *key, probe, ok bool) {
	if refused != nil {
		if call, ok = p.pool.Next(refused); !ok {
			return call, nil, false, false
		}
	} else if call = p.pool.Pick(); call.Wait() > 0 && !last {
		return call, nil, false, false
	}
	for {
		k = p.named(call.Target().Name)
		if ok, probe = p.throttles.enter(k, s); ok {
			return call, k, probe, true
		}
		if call, ok = p.following(&call); !ok {
			return call, nil, false, false
		}
	}
}

// following ends a call that was not made, and chooses another key instead.
func (p *keyPool) following(call *health.Call) (health.Call, bool) {
	next, ok := p.pool.Next(call)
	call.Done(health.Canceled)
	return next, ok
}

// another reports whether there is a key to which the call's request has not been, and
// which takes requests of the scope.
func (p *keyPool) another(call *health.Call, s scope) bool {
	next, ok := p.pool.Next(call)
	for ok {
		if _, wait := p.throttles.waitLeft(p.named(next.Target().Name), s); wait == 0 {
			next.Done(health.Canceled)
			return true
		}
		next, ok = p.following(&next)
	}
	return false
}

// waitLeft returns how long requests of the scope have to wait until a key takes them, and
// how long it is until one of them may go: a probe may go before the wait is over. Both
// are 0 if a key takes them now.
func (p *keyPool) waitLeft(s scope) (wait, next time.Duration) {
	now := clock.Now()
	if int64(now) >= p.avoidUntil.Load() && !p.throttles.active() {
		return 0, 0
	}
	wait, next = math.MaxInt64, math.MaxInt64
	for _, k := range p.keys {
		avoided := max(time.Duration(k.rejectedUntil.Load())-now, 0)
		w, n := p.throttles.waitLeft(k, s)
		wait, next = min(wait, max(w, avoided)), min(next, max(n, avoided))
	}
	if next == 0 {
		return 0, 0
	}
	return wait, next
}

// info returns the keys as they are shown, and since when all are closed: zero if
// they are not. Callers' own are not shown.
func (p *keyPool) info(now time.Time) (list []KeyInfo, since time.Time) {
	list = []KeyInfo{}
	free := false
	for i, st := range p.pool.Status() {
		k := p.keys[i]
		one := KeyInfo{Name: k.name, InFlight: st.InFlight, Failures: st.Failures, Score: st.Cost}
		if st.Closed > 0 {
			reason, at := k.lastReason()
			one.CoolUntil, one.Reason, one.Refused = new(now.Add(st.Closed)), reason, k.isRejected()
			if at.After(since) {
				since = at
			}
		} else {
			free = true
		}
		if k.account != nil {
			one.Account = k.account.name
		}
		if !k.value.IsZero() {
			list = append(list, one)
		}
	}
	if free {
		since = time.Time{}
	}
	return list, since
}

// A key that is rejected without a Retry-After is deprioritised, not disabled: another key
// or another provider takes the request if it can. If none can, the request is sent with
// the rejected key, once. The caller then sees what the provider says, and a key that is
// accepted again is noticed by the next request. Without that, one path that answers 401
// would take a fallback away from all requests.

// isRejected reports whether the key is avoided because it was rejected.
func (k *key) isRejected() bool {
	until := k.rejectedUntil.Load()
	return until != 0 && int64(clock.Now()) < until
}

// allRejected reports whether all keys are avoided because they were rejected.
func (p *keyPool) allRejected() bool {
	return !slices.ContainsFunc(p.keys, func(k *key) bool { return !k.isRejected() })
}

// onlyRejected reports whether all keys are avoided because they were rejected, and one
// of them need not wait with requests of the scope.
func (p *keyPool) onlyRejected(s scope) bool {
	return p.allRejected() && slices.ContainsFunc(p.keys, func(k *key) bool {
		_, next := p.throttles.waitLeft(k, s)
		return next == 0
	})
}

// readmit forgets that the key was rejected: it was accepted.
func (p *keyPool) readmit(k *key) (was bool) {
	if k.rejectedUntil.Load() == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return k.rejectedUntil.Swap(0) != 0 && p.pool.Readmit(k.name)
}

// reset forgets all that is known of the keys.
func (p *keyPool) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.keys {
		k.rejectedUntil.Store(0)
		p.pool.Readmit(k.name)
	}
	p.throttles.clear()
}

// blockReasons is why keys are closed: the reasons, each once.
type blockReasons struct {
	rejected  []string // of those that were rejected
	throttles []string // of those whose server said how long to wait
	account   bool     // one of them waits because its account is limited
}

// blockReasons returns why keys are closed to requests of the scope.
func (p *keyPool) blockReasons(s scope) (b blockReasons) {
	for _, k := range p.keys {
		one, all := p.throttles.waitsOf(k, s, clock.Now())
		list, reason := &b.throttles, cmp.Or(all.reason, one.reason)
		if reason == "" {
			if !k.isRejected() {
				continue
			}
			list = &b.rejected
			reason, _ = k.lastReason()
		}
		b.account = b.account || all.key != nil
		if !slices.Contains(*list, reason) {
			*list = append(*list, reason)
		}
	}
	return b
}

// throttled reports whether a 429 has closed a key.
func (b *blockReasons) throttled() bool {
	return b.account || slices.ContainsFunc(b.throttles, func(reason string) bool { return strings.HasPrefix(reason, "429") })
}

// brief returns the reason for a failover in a few words.
func (b *blockReasons) brief() string {
	all := append(slices.Clone(b.rejected), b.throttles...)
	if len(all) == 0 {
		return "no usable key"
	}
	return strings.Join(all, ", ") + " on all keys"
}

// String returns the reasons in words that follow "its keys were".
func (b *blockReasons) String() string {
	var parts []string
	if len(b.rejected) > 0 {
		parts = append(parts, "rejected ("+strings.Join(b.rejected, ", ")+")")
	}
	if len(b.throttles) > 0 {
		parts = append(parts, "throttled ("+strings.Join(b.throttles, ", ")+")")
	}
	return strings.Join(parts, " or ")
}
