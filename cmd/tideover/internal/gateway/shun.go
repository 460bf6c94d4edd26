package gateway

import (
	"slices"
	"strings"

	"github.com/tideover/tideover/internal/clock"
)

// A key that its server refuses without a word of time is avoided, and no more:
// while another key, or another provider, can take a request, that is better. When
// there is none, because all have failed or have to be waited for, the request goes
// out with the refused key all the same, once. Its caller then sees what the provider
// says and not what we think, and a key that is wanted again is noticed by the next
// request. Without that, one path that answers 401 would take a fallback away from
// everybody.

// shunned reports whether the key is avoided because it was refused.
func (k *key) shunned() bool {
	until := k.shun.Load()
	return until != 0 && int64(clock.Now()) < until
}

// shunned reports whether all keys are avoided because they were refused.
func (r *ring) shunned() bool {
	return !slices.ContainsFunc(r.keys, func(k *key) bool { return !k.shunned() })
}

// onlyShunned reports whether all keys are avoided, and one of them need not wait with
// requests of the scope.
func (r *ring) onlyShunned(s scope) bool {
	return r.shunned() && slices.ContainsFunc(r.keys, func(k *key) bool {
		_, next := r.throttles.left(k, s)
		return next == 0
	})
}

// welcome forgets that the key was refused: it was let in.
func (r *ring) welcome(k *key) (was bool) {
	if k.shun.Load() == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return k.shun.Swap(0) != 0 && r.pool.Readmit(k.name)
}

// reset forgets what was told about the keys.
func (r *ring) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.keys {
		k.shun.Store(0)
		r.pool.Readmit(k.name)
	}
	r.throttles.clear()
}

// closure is why keys are closed: the reasons, each once.
type closure struct {
	refused []string // of those that were refused
	told    []string // of those whose server said how long to wait
	account bool     // one of them waits because its account is limited
}

// closure returns why those keys are closed to requests of the scope that are.
func (r *ring) closure(s scope) (c closure) {
	for _, k := range r.keys {
		list, reason := &c.told, r.throttles.reasonOf(k, s)
		if reason == "" {
			if !k.shunned() {
				continue
			}
			list = &c.refused
			reason, _ = k.told()
		}
		c.account = c.account || r.throttles.isHeld(k)
		if !slices.Contains(*list, reason) {
			*list = append(*list, reason)
		}
	}
	return c
}

// throttled reports whether it is "too many requests" that closed a key.
func (c *closure) throttled() bool {
	return c.account || slices.ContainsFunc(c.told, func(reason string) bool { return strings.HasPrefix(reason, "429") })
}

// brief is the closure as the reason for a failover.
func (c *closure) brief() string {
	all := append(slices.Clone(c.refused), c.told...)
	if len(all) == 0 {
		return "no key is let in"
	}
	return strings.Join(all, ", ") + " on all keys"
}

// String is the closure in words that follow "its keys were".
func (c *closure) String() string {
	var parts []string
	if len(c.refused) > 0 {
		parts = append(parts, "refused ("+strings.Join(c.refused, ", ")+")")
	}
	if len(c.told) > 0 {
		parts = append(parts, "told to wait ("+strings.Join(c.told, ", ")+")")
	}
	return strings.Join(parts, " or ")
}
