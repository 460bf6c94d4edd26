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

// bareProxy is what the standard library gives to who asks for no more.
func bareProxy(upstream *url.URL) *httputil.ReverseProxy {
	return httputil.NewSingleHostReverseProxy(upstream)
}

// idlePerHost is more than there are connections in any scenario.
const idlePerHost = 1024

// tunedProxy is the same with what its documentation offers for speed, and
// nothing else: the measure for what a gateway adds.
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
	// When the load ends it leaves connections behind, which is no news.
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
