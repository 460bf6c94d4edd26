package chaos

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
)

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// plainWriter hides everything of a writer but the methods of the interface.
type plainWriter struct{ http.ResponseWriter }

// A chaos server can be the handler of another server, also behind a writer that does not
// give the connection away. The client sees a failure, and the other server logs no panic.
func TestFaultsInAnotherServer(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"reset", "close", "malformed", "200(reset=50%)", "200(cut=50%)", "200(chunked reset=50%)", "*: down from 0s to 1h as refuse"} {
		for _, wrapped := range []bool{false, true} {
			for _, http2 := range []bool{false, true} {
				inner := Must(spec)
				t.Cleanup(func() { _ = inner.Close() })
				var logged lockedBuffer
				outer := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if wrapped {
						w = plainWriter{w}
					}
					inner.ServeHTTP(w, r)
				}))
				outer.Config.ErrorLog = log.New(&logged, "", 0)
				outer.EnableHTTP2 = http2
				outer.StartTLS()
				resp, err := outer.Client().Get(outer.URL)
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					_ = resp.Body.Close()
				}
				outer.Close()
				if err == nil || logged.String() != "" {
					t.Errorf("%s, wrapped %t, HTTP/2 %t: %v, and the server logged %q", spec, wrapped, http2, err, logged.String())
				}
				if spec == "reset" && !wrapped && !http2 && !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("%s: %v, want a RST", spec, err)
				}
			}
		}
	}
}
