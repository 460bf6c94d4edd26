package gateway

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/retryhttp"
)

// rateLimits are the rate limits that the responses of a provider state.
type rateLimits struct {
	mu    sync.Mutex
	known map[[2]string]Quota // by key and name
}

// rateLimitHeader is a limit that an API states in its responses: names of headers in
// their canonical form.
type rateLimitHeader struct{ name, limit, remaining, reset string }

var rateLimitHeaders = []rateLimitHeader{
	{"requests", "Anthropic-Ratelimit-Requests-Limit", "Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"},
	{"tokens", "Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
	{"input-tokens", "Anthropic-Ratelimit-Input-Tokens-Limit", "Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset"},
	{"output-tokens", "Anthropic-Ratelimit-Output-Tokens-Limit", "Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset"},
	{"requests", "X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
	{"tokens", "X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
	{"requests", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
	{"requests", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"},
}

// read records what the headers of a response say of the key's limits.
func (q *rateLimits) read(key string, h http.Header, now time.Time) {
	for _, header := range rateLimitHeaders {
		remaining, ok := count(h[header.remaining])
		if !ok {
			continue
		}
		one := Quota{Name: header.name, Key: key, Remaining: remaining, Reset: reset(h, header.reset, now)}
		one.Limit, _ = count(h[header.limit])
		q.mu.Lock()
		put(&q.known, [2]string{key, header.name}, one)
		q.mu.Unlock()
	}
}

// count reads a number, of which a list of limits has the first in front.
func count(values []string) (int64, bool) {
	if len(values) == 0 {
		return 0, false
	}
	v, _, _ := strings.Cut(values[0], ",")
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	return n, err == nil && n >= 0
}

// reset returns when a limit begins anew. Its values have all the forms that a
// Retry-After has.
func reset(h http.Header, name string, now time.Time) *time.Time {
	v := h.Get(name)
	if v == "" {
		return nil
	}
	d, ok := retryhttp.ServerDelay(http.Header{"Retry-After": {v}, "Date": h["Date"]}, now)
	if !ok || d > 366*24*time.Hour {
		return nil
	}
	at := now.Add(d)
	return &at
}

// list returns what is known of the keys. A limit that has begun anew says nothing
// any more, nor does that of a key which is gone.
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
