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
	server := &http.Server{Handler: p} //nolint:gosec // needs no timeouts: all clients are our own
	return server.Serve(l)
}

// buffers is the buffer pool of a proxy; see [httputil.BufferPool].
type buffers struct{ pool sync.Pool }

// bufferSize is the size of the buffers that a proxy without a pool uses.
const bufferSize = 32 * 1024

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferSize]byte)(p)) }
