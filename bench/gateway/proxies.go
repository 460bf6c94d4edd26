package gateway

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
)

// idlePerHost is more than the connections of any scenario.
const idlePerHost = 1024

// tunedProxy is the standard library's proxy with the settings that its
// documentation offers for speed: the baseline for what a gateway adds.
func tunedProxy(upstream *url.URL) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{}).DialContext,
			MaxIdleConnsPerHost: idlePerHost,
			DisableCompression:  true,
		},
		FlushInterval: -1,
		BufferPool:    &buffers{},
	}
}

// serveProxy serves the proxy until the listener is closed.
func serveProxy(l net.Listener, p *httputil.ReverseProxy) error {
	// When the load ends it drops connections, which is expected.
	p.ErrorLog = log.New(io.Discard, "", 0)
	server := &http.Server{Handler: p} //nolint:gosec // the load is ours: a slow one is its fault
	return server.Serve(l)
}

// buffers is the pool of a proxy.
type buffers struct{ pool sync.Pool }

// bufferSize is that of a proxy without a pool.
const bufferSize = 32 * 1024

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferSize]byte)(p)) }
