package retryhttp_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tideover/tideover/retryhttp"
)

// compressed returns the text as the writer w encodes it.
func compressed(t *testing.T, text string, w func(io.Writer) io.WriteCloser) string {
	t.Helper()
	var b bytes.Buffer
	c := w(&b)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The transport decodes the body of a failure to read it, and the caller gets the body
// as it was sent.
func TestB6EncodedBodiesAreUnderstood(t *testing.T) {
	const gone = `{"error":{"code":"insufficient_quota"}}`
	zip := func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
	wrapped := func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }
	bare := func(w io.Writer) io.WriteCloser { f, _ := flate.NewWriter(w, 5); return f }
	bomb := compressed(t, strings.Repeat(" ", 10<<20)+gone, zip)
	for _, tt := range []struct {
		name, encoding, body string
		final                bool // quota is used up, so the request is not retried
	}{
		{"plain", "identity", gone, true},
		{"gzip", "gzip", compressed(t, gone, zip), true},
		{"gzip by its old name", "X-GZIP", compressed(t, gone, zip), true},
		{"deflate", "deflate", compressed(t, gone, wrapped), true},
		{"deflate without its wrapper", "deflate", compressed(t, gone, bare), true},
		{"twice", "deflate, gzip", compressed(t, compressed(t, gone, wrapped), zip), true},
		{"an encoding that was given", "upside-down", "x" + gone, true},
		{"an unknown encoding", "zz", gone, false},
		{"no gzip at all", "gzip", gone, false},
		{"a bomb", "gzip", bomb, false},
		{"too many", "gzip, gzip, gzip", gone, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
					asked++
					w.Header().Set("Content-Encoding", tt.encoding)
					w.WriteHeader(http.StatusTooManyRequests)
					_, _ = io.WriteString(w, tt.body)
				})
				g := newRig(t, quick, retryhttp.WithDecoder("upside-down", func(r io.Reader) (io.Reader, error) {
					_, err := io.ReadFull(r, make([]byte, 1))
					return r, err
				}))
				req := request(t, "GET", s.URL, nil)
				req.Header.Set("Accept-Encoding", "gzip") // the transport decodes nothing
				resp, body := g.send(t, req)
				if body != tt.body || resp.Header.Get("Content-Encoding") != tt.encoding {
					t.Errorf("the caller got %d bytes, want the %d of the server", len(body), len(tt.body))
				}
				if (asked == 1) != tt.final {
					t.Errorf("asked %d times, final %v", asked, tt.final)
				}
			})
		})
	}
}
