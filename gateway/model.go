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

// maxModelBody is how much of a request's body is read to find its model. If the policy
// allows several attempts, retryhttp keeps as much of it in memory in any case.
const maxModelBody = 256 << 10

// readModel finds the model of the request: a parameter of its query, or a field of its
// JSON body, of which it reads at most maxModelBody.
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

// headOf returns the beginning of the request's body. The body can still be sent in full.
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

// record makes the beginning of a body without GetBody readable before it is sent.
func record(req *http.Request) {
	if hasJSON(req) {
		req.Body = &recordedBody{ReadCloser: req.Body}
	}
}

// recordedBody is a body that keeps a copy of its beginning.
type recordedBody struct {
	io.ReadCloser
	started atomic.Bool // sending has begun

	mu   sync.Mutex
	head []byte
	off  int   // number of bytes of head that were sent
	err  error // error or io.EOF that was found while reading ahead
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

// beginning returns the beginning of the body. It reads the beginning if sending has not
// begun.
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

// modelName matches names of models. Other names count as no model.
var modelName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$`)

// modelInQuery returns the model that a query names, or "".
func modelInQuery(query string) string {
	values, _ := url.ParseQuery(query) // an error leaves the parameters that could be parsed
	if name := values.Get("model"); modelName.MatchString(name) {
		return name
	}
	return ""
}

// modelIn returns the text of the field "model" of a JSON object, or "". The object may
// be cut off after the field.
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
