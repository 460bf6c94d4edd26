package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// maxModelBody is how much of a request's body is read to find its model. As much
// of it is kept in memory in any case.
const maxModelBody = 256 << 10

// readModel finds out which model the request is for: a field of its JSON body, of
// which a bounded part is read, or a parameter of its query.
func (r *request) readModel(req *http.Request) {
	if r.model.Load() != nil {
		return
	}
	model := modelInQuery(r.query)
	if model == "" && hasJSON(req) {
		model = modelIn(headOf(req))
	}
	r.model.Store(&model)
}

// hasJSON reports whether the request has a body of JSON.
func hasJSON(req *http.Request) bool {
	if req.Body == nil || req.Body == http.NoBody {
		return false
	}
	kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}

// headOf returns the beginning of the request's body, which can be sent afterwards.
func headOf(req *http.Request) []byte {
	if kept, ok := req.Body.(*recordedBody); ok {
		return kept.beginning()
	}
	if req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	defer body.Close()
	head, _ := io.ReadAll(io.LimitReader(body, maxModelBody))
	return head
}

// record makes the beginning of a body readable that is sent only once.
func record(req *http.Request) {
	if hasJSON(req) {
		req.Body = &recordedBody{ReadCloser: req.Body}
	}
}

// recordedBody is a body that keeps its beginning.
type recordedBody struct {
	io.ReadCloser
	started atomic.Bool // it is being sent

	mu   sync.Mutex
	head []byte
	off  int   // in head, of what was not sent yet
	err  error // how the body ended while it was read ahead
}

// Read implements [io.Reader].
func (b *recordedBody) Read(p []byte) (int, error) {
	b.started.Store(true)
	b.mu.Lock()
	ahead, err := b.head[b.off:], b.err
	if len(ahead) > 0 {
		n := copy(p, ahead)
		b.off += n
		b.mu.Unlock()
		return n, nil
	}
	b.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.head = append(b.head, p[:max(min(n, maxModelBody-len(b.head)), 0)]...)
	b.off = len(b.head)
	return n, err
}

// beginning returns the beginning of the body. It reads that if the body is not being
// sent yet.
func (b *recordedBody) beginning() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.started.Load() && b.err == nil && len(b.head) == 0 {
		b.head, b.err = io.ReadAll(io.LimitReader(b.ReadCloser, maxModelBody))
		if b.err == nil && len(b.head) < maxModelBody {
			b.err = io.EOF
		}
	}
	return bytes.Clone(b.head)
}

// modelName is what names of models look like. Others are not told apart.
var modelName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$`)

// modelInQuery returns the model that a query names, or "".
func modelInQuery(query string) string {
	values, _ := url.ParseQuery(query) // as far as it can be read
	if name := values.Get("model"); modelName.MatchString(name) {
		return name
	}
	return ""
}

// modelIn returns the text of the field "model" of a JSON object, or "". The object may
// be cut off behind it.
func modelIn(body []byte) string {
	fields := json.NewDecoder(bytes.NewReader(body))
	if begin, err := fields.Token(); err != nil || begin != json.Delim('{') {
		return ""
	}
	for {
		field, err := fields.Token()
		var value json.RawMessage
		if err != nil || fields.Decode(&value) != nil {
			return ""
		}
		var name string
		if field == "model" && json.Unmarshal(value, &name) == nil && modelName.MatchString(name) {
			return name
		}
	}
}
