package gateway

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/internal/secret"
)

// How long a key is left alone whose server did not say for how long.
const (
	coolThrottled = time.Second      // 429: the policy's delays do the rest
	coolRefused   = 5 * time.Minute  // 401, 403: somebody has to look at it
	coolUnpaid    = 10 * time.Minute // 402, and quota that is gone
)

// What a target is called that is none of our keys.
const (
	callersKey = "caller" // each caller brings its own
	noKey      = "none"
)

// ring is the keys of a provider. Whoever calls it shares them, and what was told
// about them: those who asked for the provider, and those for whom it stands in.
type ring struct {
	keys []*key
	own  bool // what is told of a key is about us: the caller's is none of our business
	pool *health.Pool
	cold atomic.Int64 // reading of the clock up to which a key is avoided

	throttles throttles  // what its server asked to wait for
	mu        sync.Mutex // held while keys are closed, or let in again
}

// key is one of them.
type key struct {
	name  string
	value secret.String // empty if it is none of ours
	tally *keyTally

	account *sharedAccount // whose limit it shares; nil means none
	worked  atomic.Int64   // when it last succeeded, since 1970; only of a key with an account

	shun atomic.Int64 // reading of the clock up to which it is avoided because it was refused; see ring.shunned

	mu     sync.Mutex
	reason string // what closed it last
	cooled time.Time
}

// newRing makes the keys of a provider. account returns the account of a name.
func newRing(s *Spec, t *tally, account func(name string) *sharedAccount) (*ring, error) {
	r := &ring{own: s.ours()}
	for _, k := range s.Keys {
		r.keys = append(r.keys, &key{name: k.Name, value: k.Value, tally: t.key(k.Name), account: account(k.Account)})
	}
	if len(r.keys) == 0 {
		name := callersKey
		if s.Keyless {
			name = noKey
		}
		r.keys = append(r.keys, &key{name: name, tally: t.key(name)})
	}
	targets := make([]health.Target, len(r.keys))
	for i, k := range r.keys {
		targets[i] = health.Target{Name: k.name, Provider: "it"}
	}
	// Failures of the server eject no key: the provider's gate knows better.
	var err error
	r.pool, err = health.NewPool(health.PoolConfig{Failures: math.MaxInt}, targets)
	return r, err
}

// same reports whether the other ring has the same keys.
func (r *ring) same(o *ring) bool {
	if r.own != o.own || len(r.keys) != len(o.keys) {
		return false
	}
	for i, k := range r.keys {
		if other := o.keys[i]; k.name != other.name || k.account != other.account || !k.value.Equal(other.value.Reveal()) {
			return false
		}
	}
	return true
}

// inherit takes over what was told about keys that are in the old ring too.
func (r *ring) inherit(old *ring) {
	for i, st := range old.pool.Status() {
		was := old.keys[i]
		if k := r.successor(was); k != nil && st.Closed > 0 {
			reason, _ := was.told()
			r.cool(k, st.Closed, reason)
		}
	}
	r.throttles.inherit(&old.throttles, r.successor)
}

// successor returns the same key as one of another ring has it, or nil.
func (r *ring) successor(was *key) *key {
	if k := r.named(was.name); k != nil && k.value.Equal(was.value.Reveal()) {
		return k
	}
	return nil
}

func (r *ring) named(name string) *key {
	for _, k := range r.keys {
		if k.name == name {
			return k
		}
	}
	return nil
}

// cool makes the key be avoided for so long, because it is not wanted.
func (r *ring) cool(k *key, wait time.Duration, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.mu.Lock()
	k.reason, k.cooled = reason, time.Now()
	k.mu.Unlock()
	until := int64(clock.Later(clock.Now(), wait))
	k.shun.Store(max(k.shun.Load(), until))
	r.pool.Cool(k.name, wait)
	r.cold.Store(max(r.cold.Load(), until))
}

// told returns what closed the key last, and when.
func (k *key) told() (reason string, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reason, k.cooled
}

// pick chooses a key for a request of the scope. After a call whose key was refused it
// is one that the same request has not been to; ok is false if there is none. As a last
// resort a key that is avoided is chosen all the same. probe says that the key still has
// to wait, and that this request finds out whether it must.
func (r *ring) pick(refused *health.Call, last bool, s scope) (call health.Call, k *key, probe, ok bool) {
	if refused != nil {
		if call, ok = r.pool.Next(refused); !ok {
			return call, nil, false, false
		}
	} else if call = r.pool.Pick(); call.Wait() > 0 && !last {
		return call, nil, false, false
	}
	for {
		k = r.named(call.Target().Name)
		if ok, probe = r.throttles.enter(k, s); ok {
			return call, k, probe, true
		}
		if call, ok = r.following(&call); !ok {
			return call, nil, false, false
		}
	}
}

// following ends a call that was not made, and chooses another key instead.
func (r *ring) following(call *health.Call) (health.Call, bool) {
	next, ok := r.pool.Next(call)
	call.Done(health.Canceled)
	return next, ok
}

// another reports whether there is a key to which the call's request has not been, and
// which takes requests of the scope.
func (r *ring) another(call *health.Call, s scope) bool {
	next, ok := r.pool.Next(call)
	for ok {
		if _, wait := r.throttles.left(r.named(next.Target().Name), s); wait == 0 {
			next.Done(health.Canceled)
			return true
		}
		next, ok = r.following(&next)
	}
	return false
}

// left returns how long requests of the scope have to wait until a key takes them, and
// how long it is until one of them may go all the same: both 0 if a key takes them now.
func (r *ring) left(s scope) (wait, next time.Duration) {
	now := clock.Now()
	if int64(now) >= r.cold.Load() && !r.throttles.active() {
		return 0, 0
	}
	wait, next = math.MaxInt64, math.MaxInt64
	for _, k := range r.keys {
		avoided := max(time.Duration(k.shun.Load())-now, 0)
		w, n := r.throttles.left(k, s)
		wait, next = min(wait, max(w, avoided)), min(next, max(n, avoided))
	}
	if next == 0 {
		return 0, 0
	}
	return wait, next
}

// info returns the keys as they are shown, and since when all are closed: zero if
// they are not. Callers' own are not shown.
func (r *ring) info(now time.Time) (list []KeyInfo, since time.Time) {
	list = []KeyInfo{}
	free := false
	for i, st := range r.pool.Status() {
		k := r.keys[i]
		one := KeyInfo{Name: k.name, InFlight: st.InFlight, Failures: st.Failures, Score: st.Cost}
		if st.Closed > 0 {
			until := now.Add(st.Closed)
			reason, at := k.told()
			one.CoolUntil, one.Reason, one.Refused = &until, reason, k.shunned()
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
