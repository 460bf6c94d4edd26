package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// judge compares the responses of a server with the description in openapi.yaml.
type judge struct {
	*described
	t     *testing.T
	rules *rules
}

func newJudge(t *testing.T) *judge {
	t.Helper()
	d := document(t)
	return &judge{described: d, t: t, rules: strict()}
}

// rules caches the resolved schemas.
type rules struct {
	mu    sync.Mutex
	ready map[string]*jsonschema.Resolved
}

// strict returns the rules that all judges of this process share, since resolving schemas is slow.
var strict = sync.OnceValue(func() *rules { return &rules{ready: map[string]*jsonschema.Resolved{}} })

// follows returns an error if a value does not match a schema.
func (j *judge) follows(schema map[string]any, value any) error {
	key, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	j.rules.mu.Lock()
	defer j.rules.mu.Unlock()
	resolved := j.rules.ready[string(key)]
	if resolved == nil {
		if resolved, err = j.resolve(schema); err != nil {
			return err
		}
		j.rules.ready[string(key)] = resolved
	}
	return resolved.Validate(value)
}

// resolve returns a schema that rejects properties that the description lacks. A client would ignore
// them.
func (j *judge) resolve(schema map[string]any) (*jsonschema.Resolved, error) {
	closed := map[string]any{}
	if err := j.close(schema, closed); err != nil {
		return nil, err
	}
	text, err := json.Marshal(map[string]any{"$defs": closed, "allOf": []any{schema}})
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte("#/components/schemas/"), []byte("#/$defs/")), &s); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
}

// close adds the components to which a schema refers to closed, and forbids properties that are not
// described. It does not add all components: resolving them for each schema would take seconds.
func (j *judge) close(schema map[string]any, closed map[string]any) error {
	text, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	for _, m := range componentNames.FindAllSubmatch(text, -1) {
		name := string(m[1])
		s, ok := j.Components.Schemas[name]
		if closed[name] != nil || !ok {
			continue
		}
		if s["properties"] != nil {
			s = maps.Clone(s)
			s["additionalProperties"] = false
		}
		closed[name] = s
		if err := j.close(s, closed); err != nil {
			return err
		}
	}
	return nil
}

var componentNames = regexp.MustCompile(`#/components/schemas/(\w+)`)

// route returns the described operation of a request; nil if there is none.
func (j *judge) route(r *http.Request) *operation {
	if unversioned[r.URL.Path] != "" {
		return j.operation(r.Method, r.URL.Path)
	}
	path, _ := strings.CutPrefix(r.URL.EscapedPath(), Prefix)
	for _, t := range new(router).routes() {
		if _, ok := t.match(path); ok && (t.method == r.Method || t.method == http.MethodGet && r.Method == http.MethodHead) {
			return j.operation(t.method, t.pattern())
		}
	}
	return nil
}

func (j *judge) operation(method, path string) *operation {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if o, ok := j.Paths[path][strings.ToLower(method)]; ok {
		return &o
	}
	return nil
}

// verdict returns an error if a response does not match the description.
func (j *judge) verdict(r *http.Request, status int, header http.Header, text string) error {
	kind := header.Get("Content-Type")
	o := j.route(r)
	if o == nil { // the path does not exist, or does not allow the method
		o = &operation{Responses: map[string]response{}}
		for _, operations := range j.Paths {
			for _, other := range operations {
				maps.Copy(o.Responses, problems(other.Responses))
			}
		}
		o.Responses["405"] = o.Responses["404"]
	}
	resp, ok := o.Responses[fmt.Sprint(status)]
	if !ok {
		return fmt.Errorf("the status %d is not described: %s", status, text)
	}
	if resp.Ref != "" {
		resp = j.Components.Responses[resp.name()]
	}
	content, ok := resp.Content[kind]
	switch {
	case !ok:
		return fmt.Errorf("with status %d the type %q is not described: %s", status, kind, text)
	case r.Method == http.MethodHead || kind == "application/yaml" || kind == "text/plain; charset=utf-8":
		return nil
	case kind == "text/event-stream":
		return j.messages(text)
	}
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return fmt.Errorf("status %d: %w: %s", status, err, text)
	}
	if err := j.follows(content.Schema, value); err != nil {
		return fmt.Errorf("status %d: %w: %s", status, err, text)
	}
	return nil
}

// problems returns the responses that refer to a shared component.
func problems(all map[string]response) map[string]response {
	shared := maps.Clone(all)
	maps.DeleteFunc(shared, func(_ string, r response) bool { return r.Ref == "" })
	return shared
}

// messages returns an error if one of the first 200 messages of a stream does not match the description.
// It ignores the last message, which may be cut off.
func (j *judge) messages(text string) error {
	schemas := map[string]string{"": "Event", "missed": "Missed", "end": "Outcome"}
	list := strings.Split(text, "\n\n")
	for _, m := range list[:min(len(list)-1, 200)] {
		name, data := "", ""
		for line := range strings.SplitSeq(m, "\n") {
			if rest, ok := strings.CutPrefix(line, "event: "); ok {
				name = rest
			}
			if rest, ok := strings.CutPrefix(line, "data: "); ok {
				data = rest
			}
		}
		if data == "" {
			continue
		}
		var value any
		if err := json.Unmarshal([]byte(data), &value); err != nil {
			return err
		}
		if err := j.follows(map[string]any{"$ref": "#/components/schemas/" + schemas[name]}, value); err != nil {
			return fmt.Errorf("message %q: %w: %s", name, err, data)
		}
	}
	return nil
}

// witness records the response of a handler.
type witness struct {
	http.ResponseWriter
	status int
	text   bytes.Buffer
}

func (w *witness) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *witness) Write(p []byte) (int, error) {
	w.text.Write(p)
	return w.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (w *witness) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// before returns a handler that calls next, and compares each response with openapi.yaml.
func (j *judge) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &witness{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(seen, r)
		if r.Context().Err() == nil || seen.text.Len() > 0 { // the client has not disconnected
			j.look(r, seen.status, seen.Header(), seen.text.String())
		}
	})
}

// look fails the test if a response does not match the description. It ignores responses of pages.
func (j *judge) look(r *http.Request, status int, header http.Header, text string) {
	if !strings.HasPrefix(r.URL.Path, "/api/") && r.URL.Path != "/healthz" {
		return
	}
	if err := j.verdict(r, status, header, text); err != nil {
		j.t.Errorf("openapi.yaml, %s %s: %v", r.Method, r.URL, err)
	}
}

func TestTheJudgeSeesMistakes(t *testing.T) {
	t.Parallel()
	j := newJudge(t)
	for _, tt := range []struct {
		name, path string
		status     int
		kind, text string
		good       bool
	}{
		{"a good answer", "/healthz", 200, "application/json", `{"ok": true}`, true},
		{"a field that is not described", "/healthz", 200, "application/json", `{"ok": true, "fine": true}`, false},
		{"a field of the wrong type", "/healthz", 200, "application/json", `{"ok": "yes"}`, false},
		{"a field that is missing", "/healthz", 200, "application/json", `{}`, false},
		{"a status that is not described", "/healthz", 418, "application/json", `{"ok": true}`, false},
		{"a type that is not described", "/healthz", 200, "text/html", `{"ok": true}`, false},
		{"a list below that is wrong", Prefix + "runs", 200, "application/json", `{"runs": [{"id": 1}]}`, false},
		{"a good problem", Prefix + "nowhere", 404, "application/problem+json", `{"status": 404, "code": "not-found", "error": "x"}`, true},
		{"a problem with an unknown code", Prefix + "nowhere", 404, "application/problem+json", `{"status": 404, "code": "lost", "error": "x"}`, false},
		{"a message of a stream that is wrong", Prefix + "events", 200, "text/event-stream", "data: {\"kind\": \"odd\"}\n\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+tt.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = j.verdict(r, tt.status, http.Header{"Content-Type": {tt.kind}}, tt.text)
			if (err == nil) != tt.good {
				t.Errorf("the verdict is %v", err)
			}
		})
	}
}
