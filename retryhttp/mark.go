package retryhttp

import (
	"context"
	"crypto/rand"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/httpheader"
)

// The headers by which layers know of each other's attempts.
const (
	attemptHeader = "X-Tideover-Attempt"
	layerHeader   = "X-Tideover-Layer"
	keyHeader     = "Idempotency-Key"
)

// newKey returns a unique Idempotency-Key.
func newKey() string { return rand.Text() }

// marks reports whether attempts have headers of their own. key is the Idempotency-Key of
// the transport; "" means none.
func (t *Transport) marks(key string) bool {
	return key != "" || t.layer != "" || len(t.deadlines) > 0 || t.router != nil
}

// mark gives the n-th attempt its own headers. The deadline is not known yet: routing
// takes time.
func (t *Transport) mark(req *http.Request, key string, n int) {
	if req.Header = req.Header.Clone(); req.Header == nil {
		req.Header = http.Header{}
	}
	if t.router != nil {
		u := *req.URL
		req.URL = &u // to be changed in place, perhaps
	}
	if key != "" {
		req.Header.Set(keyHeader, key)
	}
	if layer := t.layer; layer != "" {
		if n == 1 {
			req.Header[attemptHeader] = firstAttempt
		} else {
			req.Header.Set(attemptHeader, strconv.Itoa(n))
		}
		if above := httpheader.First(req.Header, layerHeader); above != "" && len(above) < maxLayers {
			req.Header[layerHeader] = []string{above + ", " + layer}
		} else {
			req.Header[layerHeader] = t.layers
		}
	}
}

// firstAttempt is the value of nearly all requests. It is never changed: setting the
// header replaces it.
var firstAttempt = []string{"1"}

// maxLayers keeps a loop of layers from growing a header without end.
const maxLayers = 256

// markDeadline says how long the attempt may take: in the headers in which the request
// states its deadline, or else in those that were asked for, whose names are in their
// canonical form. Without a limit it says nothing, and nothing is passed on: what a caller
// further up wrote is out of date.
func markDeadline(call context.Context, req *http.Request, names []string, limit time.Duration) {
	left, limited := limit, limit > 0
	for _, ctx := range []context.Context{req.Context(), call} {
		if at, ok := ctx.Deadline(); ok {
			if d := max(time.Until(at), 0); !limited || d < left {
				left, limited = d, true
			}
		}
	}
	if restateDeadline(req.Header, left, limited) {
		return
	}
	for _, name := range names {
		delete(req.Header, name)
		if v, ok := formatBudget(name, left); ok && limited {
			req.Header[name] = []string{v}
		}
	}
}

// restateDeadline writes what is left into the headers that state a deadline already, and
// reports whether there are any. A number of whole seconds stays one.
func restateDeadline(h http.Header, left time.Duration, limited bool) (any bool) {
	for _, t := range timeoutHeaders {
		stated := h[t.name]
		if len(stated) == 0 {
			continue
		}
		if _, _, ok := shortestTimeout(h, []timeoutHeader{t}); !ok {
			continue // no deadline to us, and not ours to change
		}
		any = true
		v, ok := formatBudget(t.name, left)
		switch {
		case !ok || !limited:
			h.Del(t.name)
			continue
		case t.name == headerStainlessTimeout && !strings.Contains(stated[0], "."):
			v = strconv.FormatInt(max(int64(left/time.Second), 1), 10)
		}
		h[t.name] = []string{v}
	}
	return any
}
