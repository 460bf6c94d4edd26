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
// a host that is down does not use up the retry budget, breaker and limits of the
// others. All of them send through the same transport below and share its
// connections.
//
// A host is scheme, name and port of the URL, without regard to upper and lower case.
//
// If there are more than MaxHosts hosts, PerHost drops the one that was unused for the
// longest time, with the state of its breaker and budget. Requests in progress are not
// affected.
type PerHost struct {
	MaxHosts int // greatest number of hosts to keep; 0 means 1000. Do not change it while requests are made.

	policy  retry.Policy
	next    http.RoundTripper
	options func(host string) []Option

	mu    sync.RWMutex
	hosts map[origin]*host
}

const defaultMaxHosts = 1000

// origin identifies a host.
type origin struct{ scheme, host string }

// host is a destination with its own transport.
type host struct {
	transport func() (*Transport, error) // the first call makes the transport
	used      atomic.Int64               // reading of the clock at the last request
}

// NewPerHost returns a transport that sends requests through next under the policy.
// options returns the options for a host, such as a new breaker. It is called once for
// each host, with the host as in the URL in lower case and the port if there
// is one, and again after the host was dropped. A nil options means no options,
// and a nil next means [http.DefaultTransport].
//
// NewPerHost returns an error if the policy is not valid, like [New]. To check the
// options too, it calls the function once with an empty host, for a transport that
// sends nothing. If the options for a real host are not valid, requests to that host
// fail with the error.
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

// RoundTrip implements [http.RoundTripper]. It calls [Transport.RoundTrip] of the host.
func (p *PerHost) RoundTrip(req *http.Request) (*http.Response, error) {
	if p == nil || p.hosts == nil {
		closeBody(req)
		return nil, errors.New("retryhttp: the PerHost was not made by NewPerHost")
	}
	if req.URL == nil {
		closeBody(req)
		return nil, errors.New("retryhttp: the request has no URL")
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

// of returns the host with its transport, and adds it if it is new. It allocates
// nothing for a known host.
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
		return h // another goroutine has added it
	}
	for len(p.hosts) >= max(cmp.Or(p.MaxHosts, defaultMaxHosts), 1) {
		p.forget()
	}
	o.scheme, o.host = strings.Clone(o.scheme), strings.Clone(o.host) // the clones do not keep the whole URL in memory
	// The options are code of the user, which must not run under our lock.
	h := &host{transport: sync.OnceValues(func() (*Transport, error) { return p.transport(o.host) })}
	h.used.Store(int64(now))
	p.hosts[o] = h
	return h
}

// forget drops the host that was unused for the longest time. It visits all hosts: that
// costs less than the connection that a new host needs, while a sorted list would cost
// every request.
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
