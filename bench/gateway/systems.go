package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// stage is what a round is measured on: the systems, where they answer, and all
// processes that were started for it.
type stage struct {
	systems []string
	at      map[string]endpoint
	processes
}

// startAll starts the upstream and the systems.
func (b *Bench) startAll(ctx context.Context, st *stage) error {
	upstream, err := b.startOwn(ctx, st, upstreamPart, "")
	if err != nil {
		return err
	}
	for _, s := range st.systems {
		if st.at[s], err = b.startSystem(ctx, st, s, upstream.addr); err == nil {
			err = st.ready(ctx, s, st.at[s])
		}
		if err != nil {
			return fmt.Errorf("start of %s: %w%s", s, err, st.said(s))
		}
	}
	return nil
}

func (b *Bench) startSystem(ctx context.Context, st *stage, name, upstream string) (endpoint, error) {
	tideover, ok := b.Builds[name]
	if name == Tideover {
		tideover, ok = b.Tideover, true
	}
	if ok {
		return b.startOther(ctx, st, name, "/p/up", fmt.Sprintf(tideoverConfig, "%s", upstream), func(file string) Command {
			return Command{Args: []string{tideover, "gateway", "--config", file, "--data", filepath.Join(b.Dir, name+".data")}}
		})
	}
	switch name {
	case Direct:
		return endpoint{addr: upstream}, nil
	case Bare, Tuned:
		return b.startOwn(ctx, st, name, upstream)
	case Caddy:
		return b.startOther(ctx, st, name, "", fmt.Sprintf(caddyConfig, "%s", upstream), func(file string) Command {
			return Command{Args: []string{b.Caddy, file}}
		})
	default:
		return endpoint{}, errors.New("there is no such system")
	}
}

// caddyConfig is what is needed to make Caddy a proxy: no TLS, no admin API, no
// access log. Of its defaults for the way to the upstream only the idle
// connections are raised, as for the tuned proxy.
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

// startOther starts a program that is told its address by a file.
func (b *Bench) startOther(ctx context.Context, st *stage, name, prefix, config string, command func(file string) Command) (endpoint, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return endpoint{}, err
	}
	file := filepath.Join(b.Dir, name+".config")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, addr), 0o600); err != nil {
		return endpoint{}, err
	}
	p, err := b.start(ctx, st, name, command(file), false)
	if err != nil {
		return endpoint{}, err
	}
	return endpoint{addr, prefix, p.cmd.Process.Pid}, nil
}

// startOwn starts a process that calls [Child], and says where it is by itself.
func (b *Bench) startOwn(ctx context.Context, st *stage, part, upstream string) (endpoint, error) {
	p, err := b.start(ctx, st, part, b.Own(part, upstream), true)
	if err != nil {
		return endpoint{}, err
	}
	return endpoint{addr: p.addr, pid: p.cmd.Process.Pid}, nil
}

// freeAddr returns an address that nobody listens on, for a program that cannot
// say which one the kernel gave it.
func freeAddr(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
