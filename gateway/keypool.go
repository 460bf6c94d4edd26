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

// How long a key is avoided if the server states no time.
const (
	defaultThrottle = time.Second      // 429: the policy's delays add to it
	avoidRejected   = 5 * time.Minute  // 401, 403: an operator has to replace the key
	avoidUnpaid     = 10 * time.Minute // 402, or quota used up
)

// Names of pool entries that stand for no configured key.
const (
	callersKey = "caller" // each caller sends its own key
	noKey      = "none"   // the provider needs no key
)

// keyPool holds the keys of a provider and their state. All requests to the provider
// share it: those that asked for the provider, and those for which it is a
// fallback.
type keyPool struct {
	keys       []*key
	ours       bool // the keys are ours, not those of callers
	pool       *health.Pool
	avoidUntil atomic.Int64 // reading of the clock until which at least one key is avoided

	throttles throttles  // waits that the server asked for
	mu        sync.Mutex // held while keys are marked as avoided or readmitted
}

// key is one key of a provider, or an entry that stands for the keys of its callers.
type key struct {
	name  string
	value secret.String // empty for callers' keys and without a key
	stats *keyStats

	account *sharedAccount // account whose limit the key shares; nil means none
	worked  atomic.Int64   // time of the last success, Unix; set only for a key with an account

	rejectedUntil atomic.Int64 // reading of the clock until which the key is avoided because it was rejected

	mu        sync.Mutex
	reason    string // why the key was avoided last
	avoidedAt time.Time
}

// newKeyPool makes the key pool of a provider. account returns the account with a name.
func newKeyPool(s *Spec, t *stats, account func(name string) *sharedAccount) (*keyPool, error) {
	p := &keyPool{ours: s.ours()}
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
		targets[i] = health.Target{Name: k.name, Provider: "it"} // one provider for all keys
	}
	// The pool ejects no key after failures of the server: the provider's gate handles those.
	var err error
	p.pool, err = health.NewPool(health.PoolConfig{Failures: math.MaxInt}, targets)
	return p, err
}

// same reports whether the other pool has the same keys, in the same order.
func (p *keyPool) same(o *keyPool) bool {
	return p.ours == o.ours && slices.EqualFunc(p.keys, o.keys, func(a, b *key) bool {
		return a.name == b.name && a.account == b.account && a.value.Equal(b.value.Reveal())
	})
}

// inherit copies the state of those keys that are also in the old pool.
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

// successor returns the key with the same name and value as a key of another pool, or nil.
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

// avoid makes the pool avoid the key for this time, because it was rejected.
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

// lastReason returns why the key was avoided last, and since when.
func (k *key) lastReason() (reason string, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reason, k.avoidedAt
}

// pick chooses a key for a request of the scope. If refused is set, it chooses a key that
// the same request has not tried. ok is false if there is none. If last is true, it may
// choose a key that is avoided. probe means that the key still has to wait, and that this
// request tests whether the wait is over.
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

// following cancels a call that was not made, and chooses another key for it.
func (p *keyPool) following(call *health.Call) (health.Call, bool) {
	next, ok := p.pool.Next(call)
	call.Done(health.Canceled)
	return next, ok
}

// another reports whether there is a key that the call's request has not tried, and
// that can take requests of the scope now.
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

// waitLeft returns how long requests of the scope have to wait for a key, and how long
// until one of them may be sent as a probe, which may be earlier. Both
// are 0 if a key can take them now.
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

// info returns the keys for the status, and since when all of them are blocked: zero if
// at least one is not. It does not list callers' own keys.
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
// the rejected key, once. The caller then sees the provider's answer, and the gateway
// notices if the key is accepted again. Otherwise a single path that answers 401
// would make a fallback unavailable to all requests.

// isRejected reports whether the key is avoided because it was rejected.
func (k *key) isRejected() bool {
	until := k.rejectedUntil.Load()
	return until != 0 && int64(clock.Now()) < until
}

// allRejected reports whether all keys are avoided because they were rejected.
func (p *keyPool) allRejected() bool {
	return !slices.ContainsFunc(p.keys, func(k *key) bool { return !k.isRejected() })
}

// onlyRejected reports whether all keys are avoided because they were rejected, and at
// least one of them is not throttled for the scope.
func (p *keyPool) onlyRejected(s scope) bool {
	return p.allRejected() && slices.ContainsFunc(p.keys, func(k *key) bool {
		_, next := p.throttles.waitLeft(k, s)
		return next == 0
	})
}

// readmit ends the avoidance of a key that was accepted. It returns whether the key had
// been rejected.
func (p *keyPool) readmit(k *key) (was bool) {
	if k.rejectedUntil.Load() == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return k.rejectedUntil.Swap(0) != 0 && p.pool.Readmit(k.name)
}

// reset clears all rejections and throttles of the keys.
func (p *keyPool) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.keys {
		k.rejectedUntil.Store(0)
		p.pool.Readmit(k.name)
	}
	p.throttles.clear()
}

// blockReasons has the reasons for which keys are blocked, each once.
type blockReasons struct {
	rejected  []string // of rejected keys
	throttles []string // of keys whose server stated how long to wait
	account   bool     // a key waits because its account is limited
}

// blockReasons returns why keys are blocked for requests of the scope.
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

// throttled reports whether a 429 or the limit of an account blocks a key.
func (b *blockReasons) throttled() bool {
	return b.account || slices.ContainsFunc(b.throttles, func(reason string) bool { return strings.HasPrefix(reason, "429") })
}

// brief returns the reasons in a few words, for a failover.
func (b *blockReasons) brief() string {
	all := append(slices.Clone(b.rejected), b.throttles...)
	if len(all) == 0 {
		return "no usable key"
	}
	return strings.Join(all, ", ") + " on all keys"
}

// String returns the reasons in a form that can follow "its keys were".
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
