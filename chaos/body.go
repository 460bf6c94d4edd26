package chaos

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/plainjson"
	"github.com/tideover/tideover/internal/secret"
)

// bodyContext has everything that the body of an answer may depend on.
type bodyContext struct {
	verdict verdict
	request *http.Request
	upload  *upload
	ask     modelRequest // model, prompt and stream of the upload
	now     time.Time
}

// payload is the body of an answer, ready to be sent.
type payload struct {
	kind   string // Content-Type
	chunks []chunk
	stream bool
}

// chunk is a part of a body.
type chunk struct {
	pause time.Duration // wait before sending it
	data  []byte
	event bool // ends an event with content
}

// compose makes the body of an answer.
func (o *bodyContext) compose() payload {
	a := &o.verdict.answer
	form := o.form()
	switch {
	case a.Stream.Form != "":
		return o.events(form, a.Stream)
	case a.RetryInfo != 0:
		return jsonPayload(o.googleError())
	}
	body := cmp.Or(a.Body, o.verdict.body)
	switch body.Kind {
	case Empty:
		return payload{}
	case Text:
		return payload{kind: "text/plain; charset=utf-8", chunks: []chunk{{data: []byte(body.Text)}}}
	case Filler:
		return payload{kind: "application/octet-stream", chunks: []chunk{{data: filler(body.Size)}}}
	case Echo:
		return jsonPayload(o.echo())
	}
	switch {
	case a.Status >= 400:
		return jsonPayload(o.failure(form))
	case a.Status >= 300:
		return payload{}
	case form == "":
		return jsonPayload(o.echo())
	case o.ask.stream:
		return o.events(form, Stream{Form: form})
	}
	return jsonPayload(o.completion(form))
}

// form returns the API whose format the body has: the API that the spec names, or else the
// API to which the request's path belongs. "" means no known API.
func (o *bodyContext) form() string {
	a := &o.verdict.answer
	for _, kind := range []string{a.Stream.Form, a.Body.Kind, o.verdict.body.Kind} {
		switch kind {
		case OpenAI, Responses, Anthropic, "plain":
			return kind
		}
	}
	switch path := strings.TrimSuffix(o.request.URL.Path, "/"); {
	case strings.HasSuffix(path, "/completions"):
		return OpenAI
	case strings.HasSuffix(path, "/responses"):
		return Responses
	case strings.HasSuffix(path, "/messages"):
		return Anthropic
	case a.Stream.Form != "":
		return "plain"
	}
	return ""
}

func jsonPayload(v any) payload {
	return payload{kind: "application/json", chunks: []chunk{{data: encode(v)}}}
}

// encode returns v as JSON with a line end. v must be encodable.
func encode(v any) []byte {
	text, _ := plainjson.Marshal(v)
	return append(text, '\n')
}

// filler returns size bytes of text, in lines of 16 bytes.
func filler(size int64) []byte {
	const text = "0123456789abcde\n"
	return bytes.Repeat([]byte(text), int(size)/len(text)+1)[:size]
}

// echoed is the JSON that describes the request.
type echoed struct {
	Number  int                 `json:"number"` // number among all requests
	Rule    int                 `json:"rule"`
	Nth     int                 `json:"nth"` // number among the requests of the rule
	Method  string              `json:"method"`
	Path    string              `json:"path"`
	Query   string              `json:"query,omitempty"`
	Proto   string              `json:"proto"`
	Headers map[string][]string `json:"headers"` // without credentials
	Body    echoedBody          `json:"body"`
}

type echoedBody struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

func (o *bodyContext) echo() echoed {
	r, v := o.request, &o.verdict
	return echoed{
		Number: v.Number, Rule: v.Rule, Nth: v.Nth, Method: r.Method, Path: r.URL.Path, Query: redactQuery(r.URL.RawQuery), Proto: r.Proto,
		Headers: redact(r.Header), Body: echoedBody{o.upload.bytes, o.upload.hash()},
	}
}

// length returns the number of bytes of the payload.
func (p *payload) length() (n int64) {
	for _, c := range p.chunks {
		n += int64(len(c.data))
	}
	return n
}

// offset returns the number of bytes before a position, at most the whole length.
func (p *payload) offset(at Position) (n int64) {
	total := p.length()
	switch at.Unit {
	case "%":
		return total * at.N / 100
	case "event":
		if at.N == 0 {
			return 0
		}
		left := at.N
		for _, c := range p.chunks {
			n += int64(len(c.data))
			if c.event {
				left--
			}
			if left == 0 {
				return n
			}
		}
		return total
	}
	return min(at.N, total)
}

// cut removes everything from an offset on.
func (p *payload) cut(at int64) {
	for i := range p.chunks {
		data := p.chunks[i].data
		if int64(len(data)) >= at {
			p.chunks[i].data = data[:at]
			p.chunks = p.chunks[:i+1]
			return
		}
		at -= int64(len(data))
	}
}

// dribble splits the body into chunks that are sent at the pace.
func (p *payload) dribble(pace Pace) {
	if pace == (Pace{}) {
		return
	}
	var slow []chunk
	for _, c := range p.chunks {
		for piece := range slices.Chunk(c.data, int(pace.Bytes)) {
			pause := pace.Every
			if len(slow) == 0 {
				pause = 0
			}
			slow = append(slow, chunk{pause: pause + c.pause, data: piece})
			c.pause = 0
		}
	}
	p.chunks = slow
}

// redact returns headers or parameters without credentials.
func redact(list map[string][]string) map[string][]string {
	list = maps.Clone(list)
	for name := range list {
		if secret.MaybeName(name) {
			list[name] = []string{secret.Mask}
		}
	}
	return list
}

// redactQuery returns the query without credentials. A query that can't be parsed is
// replaced as a whole.
func redactQuery(query string) string {
	values, err := url.ParseQuery(query)
	if err != nil {
		return secret.Mask
	}
	return url.Values(redact(values)).Encode()
}

// maxHead is how much of a request's body is kept to read the prompt.
const maxHead = 1 << 20

// upload has the length, the hash and the beginning of a request's body.
type upload struct {
	bytes int64
	sum   hash.Hash
	head  []byte
}

func newUpload() *upload { return &upload{sum: sha256.New()} }

// Write implements [io.Writer].
func (u *upload) Write(p []byte) (int, error) {
	u.bytes += int64(len(p))
	u.head = append(u.head, p[:min(len(p), maxHead-len(u.head))]...)
	return u.sum.Write(p)
}

func (u *upload) hash() string { return hex.EncodeToString(u.sum.Sum(nil)) }

// modelRequest has the fields of a request to the API of a model.
type modelRequest struct {
	model  string
	prompt string
	stream bool
}

// modelRequest reads the fields from the body. Fields that are not there stay empty.
func (u *upload) modelRequest() (a modelRequest) {
	var body struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Input json.RawMessage `json:"input"`
	}
	_ = json.Unmarshal(u.head, &body) // fields of another type stay empty
	a.model, a.stream = body.Model, body.Stream
	a.prompt = lastText(body.Input, 2)
	for _, m := range body.Messages {
		if m.Role == "user" {
			a.prompt = lastText(m.Content, 1)
		}
	}
	return a
}

// lastText returns the text of a message: a text, a list of parts with texts, or a
// list of messages, of which the last counts. depth is how deep lists may nest.
func lastText(raw json.RawMessage, depth int) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	if depth == 0 {
		return ""
	}
	var parts []struct {
		Text    string          `json:"text"`
		Content json.RawMessage `json:"content"`
	}
	_ = json.Unmarshal(raw, &parts)
	var texts []string
	for _, p := range parts {
		if p.Text != "" {
			texts = append(texts, p.Text)
		} else if last := lastText(p.Content, depth-1); last != "" {
			texts = []string{last}
		}
	}
	return strings.Join(texts, " ")
}
