package chaos

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// occasion is everything that a body may depend on.
type occasion struct {
	verdict verdict
	request *http.Request
	upload  *upload
	ask     asked // what the upload says
	now     time.Time
}

// page is a body that is ready to be sent.
type page struct {
	kind   string // Content-Type
	chunks []chunk
	stream bool
}

// chunk is a part of a body.
type chunk struct {
	pause time.Duration // before it
	data  []byte
	event bool // it ends an event with content
}

// compose makes the body of an answer.
func (o *occasion) compose() page {
	a := &o.verdict.answer
	form := o.form()
	switch {
	case a.Stream.Form != "":
		return o.events(form, a.Stream)
	case a.RetryInfo != 0:
		return jsonPage(o.googleError())
	}
	body := cmp.Or(a.Body, o.verdict.body)
	switch body.Kind {
	case Empty:
		return page{}
	case Text:
		return page{kind: "text/plain; charset=utf-8", chunks: []chunk{{data: []byte(body.Text)}}}
	case Filler:
		return page{kind: "application/octet-stream", chunks: []chunk{{data: filler(body.Size)}}}
	case Echo:
		return jsonPage(o.echo())
	}
	switch {
	case a.Status >= 400:
		return jsonPage(o.failure(form))
	case a.Status >= 300:
		return page{}
	case form == "":
		return jsonPage(o.echo())
	case o.ask.stream:
		return o.events(form, Stream{Form: form})
	}
	return jsonPage(o.completion(form))
}

// form returns the API whose language is spoken: the one that the spec names, or
// the one at the path, "" for none that is known.
func (o *occasion) form() string {
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

func jsonPage(v any) page {
	return page{kind: "application/json", chunks: []chunk{{data: encode(v)}}}
}

// encode writes JSON with a line end. Everything that is given to it has a form.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return b.Bytes()
}

// filler returns so many bytes, in lines of 16.
func filler(size int64) []byte {
	const text = "0123456789abcde\n"
	return bytes.Repeat([]byte(text), int(size)/len(text)+1)[:size]
}

// echoed is what was asked.
type echoed struct {
	Number  int                 `json:"number"` // of all requests
	Rule    int                 `json:"rule"`
	Nth     int                 `json:"nth"` // request of the rule
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

func (o *occasion) echo() echoed {
	r, v := o.request, &o.verdict
	return echoed{
		Number: v.number, Rule: v.rule + 1, Nth: v.nth, Method: r.Method, Path: r.URL.Path, Query: maskedQuery(r.URL.RawQuery), Proto: r.Proto,
		Headers: masked(r.Header), Body: echoedBody{o.upload.bytes, o.upload.hash()},
	}
}

// length returns how many bytes it has.
func (p *page) length() (n int64) {
	for _, c := range p.chunks {
		n += int64(len(c.data))
	}
	return n
}

// offset returns where a place is. One behind the end is the end.
func (p *page) offset(at Position) (n int64) {
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

// cut leaves out everything from an offset on.
func (p *page) cut(at int64) {
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

// dribble makes it as slow as the pace.
func (p *page) dribble(pace Pace) {
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
