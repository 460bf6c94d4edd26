package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// dialTimeout is how long the connection to one server may take.
const dialTimeout = 2 * time.Second

// hosts returns the addresses of the servers, without credentials.
func hosts(urls string) (list []string) {
	for part := range strings.SplitSeq(urls, ",") {
		u, err := parseURL(part)
		if err != nil {
			continue // Validate reports an invalid address
		}
		port := map[string]string{"ws": "80", "wss": "443"}[u.Scheme]
		list = append(list, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port, "4222")))
	}
	return list
}

// dialer opens the network connections of the NATS client. Until detach is called, a dial
// also ends with the context of Open, and its error is recorded for failures.
type dialer struct {
	mu     sync.Mutex
	ctx    context.Context   //nolint:containedctx // NATS hands none on
	failed map[string]string // errors by address
}

// detach makes later dials independent of the context of Open. It is called when
// the first connection is made.
func (d *dialer) detach() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx, d.failed = context.Background(), nil
}

// Dial implements [nats.CustomDialer].
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.mu.Lock()
	ctx := d.ctx
	d.mu.Unlock()
	c, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil && ctx.Err() == nil && d.failed != nil {
		d.failed[address] = err.Error()
	}
	return c, err
}

// failures returns the recorded errors in brackets, to append to an error text; "" if no
// dial has failed.
func (d *dialer) failures() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.failed) == 0 {
		return ""
	}
	return " (" + strings.Join(slices.Sorted(maps.Values(d.failed)), "; ") + ")"
}

// deadAddresses returns the addresses that do not answer, and why.
func deadAddresses(ctx context.Context, urls string) (dead []string) {
	list := hosts(urls)
	why := make([]error, len(list))
	inParallel(len(list), func(i int) {
		c, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", list[i])
		if err == nil {
			err = c.Close()
		}
		why[i] = err
	})
	for i, err := range why {
		if err != nil && ctx.Err() == nil {
			dead = append(dead, fmt.Sprintf("%s (%s)", list[i], reason(err)))
		}
	}
	return dead
}

// reason returns the text of a dial error, without the address.
func reason(err error) string {
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Err != nil {
		err = e.Err
	}
	return strings.TrimPrefix(err.Error(), "connect: ")
}
