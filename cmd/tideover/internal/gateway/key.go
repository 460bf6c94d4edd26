package gateway

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/secret"
	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/clock"
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
	cold atomic.Int64 // reading of the clock up to which a key is closed
	mu   sync.Mutex   // held while keys are closed, or let in again
}

// key is one of them.
type key struct {
	name  string
	value secret.String // empty if it is none of ours
	tally *keyTally

	shun atomic.Int64 // reading of the clock up to which it is avoided because it was refused; see ring.shunned

	mu     sync.Mutex
	reason string // what closed it last
	cooled time.Time
}

func newRing(s *Spec, t *tally) (*ring, error) {
	r := &ring{own: s.ours()}
	for _, k := range s.Keys {
		r.keys = append(r.keys, &key{name: k.Name, value: k.Value, tally: t.key(k.Name)})
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
		if other := o.keys[i]; k.name != other.name || !k.value.Equal(other.value.Reveal()) {
			return false
		}
	}
	return true
}

// inherit takes over what was told about keys that are in the old ring too.
func (r *ring) inherit(old *ring) {
	for i, st := range old.pool.Status() {
		was := old.keys[i]
		if k := r.named(was.name); k != nil && st.Closed > 0 && k.value.Equal(was.value.Reveal()) {
			reason, _ := was.told()
			r.cool(k, st.Closed, reason, was.shunned())
		}
	}
}

func (r *ring) named(name string) *key {
	for _, k := range r.keys {
		if k.name == name {
			return k
		}
	}
	return nil
}

// cool leaves the key alone for so long. refused says that nobody but us set the
// time, because the key is not wanted.
func (r *ring) cool(k *key, wait time.Duration, reason string, refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.mu.Lock()
	k.reason, k.cooled = reason, time.Now()
	k.mu.Unlock()
	until := int64(clock.Later(clock.Now(), wait))
	if refused {
		k.shun.Store(until)
	} else {
		k.shun.Store(0) // a server's word is kept
	}
	r.pool.Cool(k.name, wait)
	r.cold.Store(max(r.cold.Load(), until))
}

// told returns what closed the key last, and when.
func (k *key) told() (reason string, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reason, k.cooled
}

// pick chooses a key. After a call whose key was refused it is one that the same
// request has not been to; ok is false if there is none. wait is how long the
// first of them is closed when all are; the call is then none. As a last resort the
// first of them is chosen all the same.
func (r *ring) pick(refused *health.Call, last bool) (call health.Call, k *key, wait time.Duration, ok bool) {
	pool := r.pool
	if refused != nil {
		if call, ok = pool.Next(refused); !ok {
			return call, nil, pool.Recovery(), false
		}
	} else if call = pool.Pick(); call.Wait() > 0 && !last {
		return call, nil, call.Wait(), false
	}
	return call, r.named(call.Target().Name), 0, true
}

// another reports whether there is a key to which the call's request has not been.
func (r *ring) another(call *health.Call) bool {
	next, ok := r.pool.Next(call)
	if ok {
		next.Done(health.Canceled)
	}
	return ok
}

// closed returns how long it will be until a key may be used: 0 if one may now.
func (r *ring) closed() time.Duration {
	if int64(clock.Now()) >= r.cold.Load() {
		return 0
	}
	return r.pool.Recovery()
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
		if !k.value.IsZero() {
			list = append(list, one)
		}
	}
	if free {
		since = time.Time{}
	}
	return list, since
}
