package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// testbed has the systems of a round, their addresses, and all processes that were
// started.
type testbed struct {
	bench   *Bench
	systems []string
	at      map[string]endpoint
	processes
}

// startAll starts the upstream and the systems.
func (t *testbed) startAll(ctx context.Context) error {
	upstream, err := t.startOwn(ctx, upstreamPart, "")
	if err != nil {
		return err
	}
	for _, s := range t.systems {
		if t.at[s], err = t.startSystem(ctx, s, upstream.addr); err == nil {
			err = t.ready(ctx, s, t.at[s])
		}
		if err != nil {
			return fmt.Errorf("start of %s: %w%s", s, err, t.logTail(s))
		}
	}
	return nil
}

func (t *testbed) startSystem(ctx context.Context, name, upstream string) (endpoint, error) {
	tideover, ok := t.bench.Builds[name]
	if name == Tideover {
		tideover, ok = t.bench.Tideover, true
	}
	if ok {
		return t.startOther(ctx, name, "/p/up", fmt.Sprintf(tideoverConfig, "%s", upstream), func(file string) Command {
			return Command{Args: []string{tideover, "gateway", "--config", file, "--data", filepath.Join(t.bench.Dir, name+".data")}}
		})
	}
	switch name {
	case Direct:
		return endpoint{addr: upstream}, nil
	case Bare, Tuned:
		return t.startOwn(ctx, name, upstream)
	case Caddy:
		return t.startOther(ctx, name, "", fmt.Sprintf(caddyConfig, "%s", upstream), func(file string) Command {
			return Command{Args: []string{t.bench.Caddy, file}}
		})
	default:
		return endpoint{}, errors.New("there is no such system")
	}
}

// caddyConfig makes Caddy a proxy: no TLS, no admin API, no access log. Of its
// defaults for the upstream connections only the number of idle connections is
// raised, as for the tuned proxy.
const caddyConfig = `{
	"admin": {"disabled": true, "config": {"persist": false}},
	"logging": {"logs": {"default": {"level": "ERROR"}}},
	"apps": {"http": {"servers": {"bench": {
		"listen": ["%s"],
		"automatic_https": {"disable": true},
		"protocols": ["h1"],
		"routes": [{"handle": [{
			"handler": "reverse_proxy",
			"transport": {"protocol": "http", "keep_alive": {"max_idle_conns_per_host": 1024}},
			"upstreams": [{"dial": "%s"}]
		}]}]
	}}}}
}
`

const tideoverConfig = `version: 1
gateway: {listen: "%s"}
providers:
  up: {preset: generic, base-url: "http://%s", policy: "http attempts=3"}
`

// startOther starts a program that gets its address from a configuration file.
func (t *testbed) startOther(ctx context.Context, name, prefix, config string, command func(file string) Command) (endpoint, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return endpoint{}, err
	}
	file := filepath.Join(t.bench.Dir, name+".config")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, addr), 0o600); err != nil {
		return endpoint{}, err
	}
	e, err := t.start(ctx, name, command(file), false)
	e.addr, e.prefix = addr, prefix
	return e, err
}

// startOwn starts a process that calls [Child], and that prints its address.
func (t *testbed) startOwn(ctx context.Context, part, upstream string) (endpoint, error) {
	return t.start(ctx, part, t.bench.Own(part, upstream), true)
}

// freeAddr returns a free address, for a program that cannot listen on port 0 and
// report the port that it got.
func freeAddr(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
