package retryhttp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/retry"
)

// PerHost is an [http.RoundTripper] that has a [Transport] for each host, so that
// one that is down takes neither the retry budget nor the breaker and the limits
// of the others. All of them send through the same transport below and share its
// connections.
//
// A host is what the URL says: scheme, name and port. Upper and lower case are
// the same.
//
// The hosts that were not asked for the longest time are forgotten when there are
// too many, and with them what their breakers and budgets knew. Requests that are
// under way end as they began.
type PerHost struct {
	MaxHosts int // hosts that are remembered; 0 means 1000. It must not change while requests are made.

	policy  retry.Policy
	next    http.RoundTripper
	options func(host string) []Option

	mu    sync.RWMutex
	hosts map[origin]*host
}

const defaultMaxHosts = 1000

// origin is what a host is known by.
type origin struct{ scheme, host string }

// host is a destination with its own transport.
type host struct {
	transport func() (*Transport, error) // made by the first who asks
	used      atomic.Int64               // the clock's reading when it was asked last
}

// NewPerHost returns a transport that sends requests through next, as the policy
// says, with the options that the function returns for each host: a new breaker,
// say. It is called once for each host as the URL has it, with the port if there
// is one, and again after the host was forgotten. A nil function means no options,
// and a nil next is [http.DefaultTransport].
//
// A policy that is not valid is an error, as for [New]. So that options which are
// not valid are one too, the function is also called with an empty host, for a
// transport that sends nothing. Where it gives others to a real host that are not
// valid, the requests to that host end with the error.
func NewPerHost(policy retry.Policy, next http.RoundTripper, options func(host string) []Option) (*PerHost, error) {
	if next == nil {
		next = http.DefaultTransport
	}
	p := &PerHost{policy: policy, next: next, options: options, hosts: map[origin]*host{}}
	if _, err := p.transport(""); err != nil {
		return nil, err
	}
	return p, nil
}

// RoundTrip implements [http.RoundTripper], as [Transport.RoundTrip] does.
func (p *PerHost) RoundTrip(req *http.Request) (*http.Response, error) {
	if p == nil || p.hosts == nil {
		closeBody(req)
		return nil, errors.New("retryhttp: the PerHost was not made by NewPerHost")
	}
	if req.URL == nil {
		closeBody(req)
		return nil, errors.New("retryhttp: a request without a URL")
	}
	t, err := p.of(origin{strings.ToLower(req.URL.Scheme), strings.ToLower(req.URL.Host)}).transport()
	if err != nil {
		closeBody(req)
		return nil, fmt.Errorf("retryhttp: options for %s: %w", req.URL.Host, err)
	}
	return t.RoundTrip(req)
}

// CloseIdleConnections closes the idle connections of the transport below, if
// it can. [http.Client.CloseIdleConnections] calls it.
func (p *PerHost) CloseIdleConnections() { closeIdle(p.next) }

// of returns the host, which is made if it is not known. Nothing is allocated for
// one that is.
func (p *PerHost) of(o origin) *host {
	now := clock.Now()
	p.mu.RLock()
	h := p.hosts[o]
	p.mu.RUnlock()
	if h == nil {
		h = p.add(o, now)
	}
	h.used.Store(int64(now))
	return h
}

func (p *PerHost) add(o origin, now time.Duration) *host {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.hosts[o]; h != nil {
		return h // another goroutine was faster
	}
	for len(p.hosts) >= max(cmp.Or(p.MaxHosts, defaultMaxHosts), 1) {
		p.forget()
	}
	o.scheme, o.host = strings.Clone(o.scheme), strings.Clone(o.host) // not the whole URL
	// The options are the user's code, which must not be called under our lock.
	h := &host{transport: sync.OnceValues(func() (*Transport, error) { return p.transport(o.host) })}
	h.used.Store(int64(now))
	p.hosts[o] = h
	return h
}

// forget drops the host that was not asked for the longest time. Looking at all
// of them costs less than the connection that a new host needs, and keeping them
// in order would cost every request.
func (p *PerHost) forget() {
	var oldest origin
	last := int64(-1)
	for o, h := range p.hosts {
		if used := h.used.Load(); last < 0 || used < last {
			oldest, last = o, used
		}
	}
	delete(p.hosts, oldest)
}

func (p *PerHost) transport(host string) (*Transport, error) {
	var opts []Option
	if p.options != nil {
		opts = p.options(host)
	}
	return New(p.policy, p.next, opts...)
}
