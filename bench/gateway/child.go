package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// The parts of [Child].
const (
	upstreamPart = "upstream"
	barePart     = "bare"
	tunedPart    = "tuned"
)

// Child runs a measured process, or the upstream behind it: "upstream", "bare"
// or "tuned". It prints its address, and serves until the context is done or
// in, a pipe from the parent, ends.
func Child(ctx context.Context, part, upstream string, in io.Reader, out io.Writer) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in)
	}()
	if _, err := fmt.Fprintln(out, l.Addr()); err != nil {
		return err
	}
	to := &url.URL{Scheme: "http", Host: upstream}
	switch part {
	case upstreamPart:
		err = serveUpstream(l)
	case barePart:
		err = serveProxy(l, httputil.NewSingleHostReverseProxy(to))
	case tunedPart:
		err = serveProxy(l, tunedProxy(to))
	default:
		return fmt.Errorf("there is no part %q: use upstream, bare or tuned", part)
	}
	if errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
