package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// sse is a server-sent event.
type sse struct{ name, data string }

// readEvents reads events, and ignores an incomplete one at the end.
func readEvents(text string) (list []sse) {
	blocks := strings.Split(text, "\n\n")
	for _, block := range blocks[:len(blocks)-1] {
		var e sse
		for line := range strings.Lines(block) {
			line = strings.TrimSuffix(line, "\n")
			if v, ok := strings.CutPrefix(line, "event: "); ok {
				e.name = v
			} else if v, ok := strings.CutPrefix(line, "data: "); ok {
				e.data = v
			} else {
				e.name = "what is this: " + line
			}
		}
		list = append(list, e)
	}
	return list
}

// brief returns the kinds of the events, with a count for several of a kind in a row.
func brief(t *testing.T, list []sse) string {
	t.Helper()
	var kinds []string
	for _, e := range list {
		kind := e.name
		var v map[string]any
		switch err := json.Unmarshal([]byte(e.data), &v); {
		case err != nil:
			kind = strings.TrimRight(e.data, "0123456789 of")
		case kind != "" && v["type"] != nil && v["type"] != kind:
			t.Errorf("event %s has type %v", kind, v["type"])
		case kind != "":
		case v["error"] != nil:
			kind = "error"
		case lookup(v, "choices.0.finish_reason") != nil:
			kind = "stop"
		case lookup(v, "choices.0.delta.role") != nil:
			kind = "role"
		default:
			kind = "delta"
		}
		kinds = append(kinds, kind)
	}
	var out []string
	for len(kinds) > 0 {
		n := 1
		for n < len(kinds) && kinds[n] == kinds[0] {
			n++
		}
		text := strings.TrimPrefix(kinds[0], "response.")
		if n > 1 {
			text += fmt.Sprintf("*%d", n)
		}
		out, kinds = append(out, text), kinds[n:]
	}
	return strings.Join(out, " ")
}

func TestStreams(t *testing.T) {
	t.Parallel()
	const prompt = `{"model":"m","stream":true,"input":"hello there","messages":[{"role":"user","content":"hello there"}]}`
	for args, want := range map[string]string{
		"stream=openai events=4":                                 "role delta*4 stop [DONE]",
		"stream=openai events=4 no-done":                         "role delta*4",
		"stream=openai error-at=first":                           "error",
		"stream=openai error-at=start":                           "role error",
		"stream=openai events=4 error-at=2":                      "role delta*2 error",
		"stream=openai events=4 cut=event:3":                     "role delta*3",
		"stream=anthropic events=4":                              "message_start content_block_start ping content_block_delta*4 content_block_stop message_delta message_stop",
		"stream=anthropic events=4 no-done":                      "message_start content_block_start ping content_block_delta*4",
		"stream=anthropic error-at=first":                        "error",
		"stream=anthropic error-at=start error=overloaded_error": "message_start error",
		"stream=anthropic events=4 error-at=2":                   "message_start content_block_start ping content_block_delta*2 error",
		"stream=responses events=4":                              "created in_progress output_item.added content_part.added output_text.delta*4 output_text.done content_part.done output_item.done completed",
		"stream=responses error-at=first":                        "error",
		"stream=responses error-at=start":                        "created error",
		"stream=responses events=4 no-done":                      "created in_progress output_item.added content_part.added output_text.delta*4",
		"stream=plain events=4":                                  "event*4",
		"stream=plain events=4 error-at=1":                       "event error",
		"stream=plain cut=0":                                     "",
		"stream=auto":                                            "event*10",
		"stream=openai events=1":                                 "role delta stop [DONE]",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "200("+args+")")
			resp, text, err := do(t, client(t, s, http1), http.MethodPost, s.URL(), prompt)
			if cut := strings.Contains(args, "cut="); (err != nil) != cut {
				t.Errorf("the body ended with %v", err)
			}
			if resp.Header.Get("Content-Type") != "text/event-stream" || resp.ContentLength != -1 {
				t.Errorf("%s with length %d", resp.Header.Get("Content-Type"), resp.ContentLength)
			}
			if got := brief(t, readEvents(text)); got != want {
				t.Errorf("got  %s\nwant %s\n%s", got, want, text)
			}
			if strings.Contains(args, "error=overloaded_error") && !strings.Contains(text, `"type":"overloaded_error"`) {
				t.Errorf("no such code in %s", text)
			}
		})
	}
}

// TestAStreamIsSentToWhoAsksForOne checks the text that an SDK would assemble from it.
func TestAStreamIsSentToWhoAsksForOne(t *testing.T) {
	t.Parallel()
	for path, delta := range map[string]string{"/v1/chat/completions": "choices.0.delta.content", "/v1/messages": "delta.text", "/v1/responses": "delta"} {
		s := serve(t, "200")
		_, _, text := post(t, s, path, `{"stream":true,"input":"hello\nthere","messages":[{"role":"user","content":"hello\nthere"}]}`)
		said := ""
		for _, e := range readEvents(text) {
			var v any
			_ = json.Unmarshal([]byte(e.data), &v)
			if piece, ok := lookup(v, delta).(string); ok {
				said += piece
			}
		}
		if said != "You said: hello\nthere" {
			t.Errorf("%s: the pieces make %q\n%s", path, said, text)
		}
	}
}

// TestEventsComeOneByOne reads each event before the next is sent.
//
// real clock: the least time that it takes.
func TestEventsComeOneByOne(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{http1, h2c, h2} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			s, c := serveProto(t, proto, "200(stream=plain events=4 every=20ms),200(stream=plain events=4 every=1h)")
			begin := time.Now()
			if _, text, err := do(t, c, http.MethodGet, s.URL(), ""); err != nil || len(readEvents(text)) != 4 {
				t.Errorf("got %q, %v", text, err)
			}
			if took := time.Since(begin); took < 60*time.Millisecond {
				t.Errorf("4 events every 20ms took %v", took)
			}
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL(), http.NoBody)
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			const first = "data: event 1 of 4\n\n"
			got := make([]byte, len(first))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != first {
				t.Errorf("the first event is %q, %v", got, err)
			}
		})
	}
}

func TestCutText(t *testing.T) {
	for _, text := range []string{"", "a", "héllo wörld", strings.Repeat("x", 100)} {
		for _, n := range []int{1, 2, 7, 50} {
			pieces := cutText(text, n)
			if len(pieces) != n || slices.Contains(pieces, "") || !strings.HasPrefix(strings.Join(pieces, ""), text) {
				t.Errorf("cutText(%q, %d) = %q", text, n, pieces)
			}
		}
	}
}
