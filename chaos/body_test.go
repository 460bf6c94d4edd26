package chaos

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// post sends a body and returns the JSON of the answer.
func post(t *testing.T, s *Server, path, body string, headers ...string) (*http.Response, map[string]any, string) {
	t.Helper()
	resp, text, err := do(t, client(t, s, http1), http.MethodPost, s.URL()+path, body, headers...)
	if err != nil {
		t.Fatalf("POST %s: %v", path, err)
	}
	var v map[string]any
	_ = json.Unmarshal([]byte(text), &v) // v stays nil if the answer is not JSON
	return resp, v, text
}

// lookup follows a path such as choices.0.message.content.
func lookup(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch w := v.(type) {
		case map[string]any:
			v = w[name]
		case []any:
			if len(w) == 0 {
				return nil
			}
			v = w[0]
		default:
			return nil
		}
	}
	return v
}

func TestEcho(t *testing.T) {
	t.Parallel()
	s := serve(t, "/other: 200; *: 503,200")
	get(t, s, "/other")
	get(t, s, "/x")
	_, v, text := post(t, s, "/x/y?page=2&api_key=hunter2&sig=hunter2", "some body",
		"Authorization", "Bearer hunter2", "X-Api-Key", "hunter2", "Cookie", "a=hunter2", "X-Goog-Api-Key", "hunter2", "Idempotency-Key", "call-1", "X-Tenant", "a")
	if strings.Contains(text, "hunter2") {
		t.Errorf("a credential is echoed: %s", text)
	}
	sum := sha256.Sum256([]byte("some body"))
	for path, want := range map[string]any{
		"number": 3.0, "rule": 2.0, "nth": 2.0, "method": "POST", "path": "/x/y", "query": "api_key=%2A%2A%2A&page=2&sig=%2A%2A%2A", "proto": "HTTP/1.1",
		"headers.Authorization.0": "***", "headers.Cookie.0": "***", "headers.X-Tenant.0": "a", "headers.Idempotency-Key.0": "call-1",
		"body.bytes": 9.0, "body.sha256": hex.EncodeToString(sum[:]),
	} {
		if got := lookup(v, path); !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %v, want %v", path, got, want)
		}
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	const chat = `{"model":"gpt-x","messages":[{"role":"system","content":"be nice"},{"role":"user","content":[{"type":"text","text":"hello"},{"type":"text","text":"there"}]}]}`
	for name, tt := range map[string]struct {
		spec, path, body string
		status           int
		kind             string
		want             map[string]any // values by path; "" is the whole text
	}{
		"a text":              {`200(body="hi")`, "/", "", 200, "text/plain; charset=utf-8", map[string]any{"": "hi"}},
		"a filler":            {`200 body=20`, "/", "", 200, "application/octet-stream", map[string]any{"": "0123456789abcde\n0123"}},
		"nothing":             {`200(body=none)`, "/", "", 200, "", map[string]any{"": ""}},
		"nothing, by status":  {`302(location=/there)`, "/", "", 302, "", map[string]any{"": ""}},
		"a type of one's own": {`200(body="a,b" content-type=text/csv)`, "/", "", 200, "text/csv", map[string]any{"": "a,b"}},
		"a chat completion": {"200", "/v1/chat/completions", chat, 200, "application/json", map[string]any{
			"object": "chat.completion", "model": "gpt-x", "choices.0.message.content": "You said: hello there", "choices.0.finish_reason": "stop", "usage.prompt_tokens": 2.0,
		}},
		"a message": {"200", "/anthropic/v1/messages", chat, 200, "application/json", map[string]any{
			"type": "message", "role": "assistant", "content.0.text": "You said: hello there", "stop_reason": "end_turn", "usage.input_tokens": 2.0,
		}},
		"a response": {"200", "/v1/responses", `{"model":"m","input":"hello"}`, 200, "application/json", map[string]any{
			"object": "response", "status": "completed", "output.0.content.0.text": "You said: hello", "usage.total_tokens": 4.0,
		}},
		"a response to messages": {"200", "/v1/responses", `{"input":[{"role":"user","content":[{"type":"input_text","text":"hello"}]}]}`, 200, "application/json", map[string]any{
			"output.0.content.0.text": "You said: hello",
		}},
		"another form than the path's": {"200(body=anthropic)", "/v1/chat/completions", chat, 200, "application/json", map[string]any{"type": "message"}},
		"a form of the rule":           {"200 body=openai", "/", chat, 200, "application/json", map[string]any{"object": "chat.completion"}},
		"not JSON":                     {"200", "/v1/messages", "hello", 200, "application/json", map[string]any{"content.0.text": "You said: "}},
		"a limit of OpenAI":            {"429", "/v1/chat/completions", chat, 429, "application/json", map[string]any{"error.code": "rate_limit_exceeded", "error.type": "requests"}},
		"no quota of OpenAI":           {"429(error=insufficient_quota)", "/v1/responses", "", 429, "application/json", map[string]any{"error.code": "insufficient_quota", "error.type": "insufficient_quota"}},
		"a failure of OpenAI":          {"500", "/v1/chat/completions", chat, 500, "application/json", map[string]any{"error.type": "server_error", "error.code": nil}},
		"a limit of Anthropic":         {"429", "/v1/messages", chat, 429, "application/json", map[string]any{"type": "error", "error.type": "rate_limit_error"}},
		"an overload of Anthropic":     {"529", "/v1/messages", chat, 529, "application/json", map[string]any{"error.type": "overloaded_error"}},
		"no credit of Anthropic":       {"402", "/v1/messages", chat, 402, "application/json", map[string]any{"error.type": "billing_error"}},
		"a refusal of Anthropic":       {"422", "/v1/messages", chat, 422, "application/json", map[string]any{"error.type": "invalid_request_error"}},
		"a delay of Google": {"429(retry-info=34.5s)", "/v1beta/models/x:generateContent", "", 429, "application/json", map[string]any{
			"error.status": "RESOURCE_EXHAUSTED", "error.details.0.@type": "type.googleapis.com/google.rpc.RetryInfo", "error.details.0.retryDelay": "34.5s",
		}},
		"any failure":           {"503", "/", "", 503, "application/json", map[string]any{"error.code": "service_unavailable"}},
		"a failure with a text": {`503(body="down")`, "/", "", 503, "text/plain; charset=utf-8", map[string]any{"": "down"}},
		"no rule":               {"/a: 200", "/b", "", 404, "application/json", map[string]any{"error.message": "chaos: no rule matches POST /b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tt.spec)
			c := client(t, s, http1)
			c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			resp, text, err := do(t, c, http.MethodPost, s.URL()+tt.path, tt.body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status || resp.Header.Get("Content-Type") != tt.kind {
				t.Errorf("%d %s, want %d %s", resp.StatusCode, resp.Header.Get("Content-Type"), tt.status, tt.kind)
			}
			var v any
			_ = json.Unmarshal([]byte(text), &v)
			for path, want := range tt.want {
				got := any(text)
				if path != "" {
					got = lookup(v, path)
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s = %v, want %v in %s", path, got, want, text)
				}
			}
		})
	}
}

func TestFail(t *testing.T) {
	t.Parallel()
	s := serve(t, "fail")
	seen := map[int]bool{}
	for range 40 {
		resp, _ := get(t, s, "/")
		seen[resp.StatusCode] = true
	}
	if !reflect.DeepEqual(seen, map[int]bool{500: true, 502: true, 503: true, 504: true}) {
		t.Errorf("fail is %v", seen)
	}
}
