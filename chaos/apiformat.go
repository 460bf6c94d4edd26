package chaos

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// object is a JSON object; its keys are written in alphabetical order.
type object map[string]any

// completionText returns the model's answer: it repeats the prompt.
func (o *bodyContext) completionText() string { return "You said: " + o.ask.prompt }

// tokens returns a rough number of tokens of a text.
func tokens(text string) int { return len(strings.Fields(text)) }

func (o *bodyContext) id(prefix string) string {
	return prefix + "chaos" + strconv.Itoa(o.verdict.Number)
}

// completion returns the answer to the prompt, in the format of an API.
func (o *bodyContext) completion(form string) any {
	ask, text := o.ask, o.completionText()
	model, in, out := cmp.Or(ask.model, "chaos"), tokens(ask.prompt), tokens(text)
	switch form {
	case Anthropic:
		return object{
			"id": o.id("msg_"), "type": "message", "role": "assistant", "model": model, "content": []object{{"type": "text", "text": text}},
			"stop_reason": "end_turn", "stop_sequence": nil, "usage": object{"input_tokens": in, "output_tokens": out},
		}
	case Responses:
		return o.response("completed", []object{o.outputItem("completed", text)}, in, out)
	}
	return object{
		"id": o.id("chatcmpl-"), "object": "chat.completion", "created": o.now.Unix(), "model": model,
		"choices": []object{{"index": 0, "message": object{"role": "assistant", "content": text, "refusal": nil}, "logprobs": nil, "finish_reason": "stop"}},
		"usage":   object{"prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out},
	}
}

// response returns the response object of OpenAI's responses API.
func (o *bodyContext) response(status string, output []object, in, out int) object {
	r := object{
		"id": o.id("resp_"), "object": "response", "created_at": o.now.Unix(), "status": status, "model": cmp.Or(o.ask.model, "chaos"),
		"output": output, "error": nil, "incomplete_details": nil, "instructions": nil, "metadata": object{},
		"parallel_tool_calls": true, "temperature": 1, "tool_choice": "auto", "tools": []object{}, "top_p": 1,
	}
	if status == "completed" {
		r["usage"] = object{
			"input_tokens": in, "input_tokens_details": object{"cached_tokens": 0},
			"output_tokens": out, "output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": in + out,
		}
	}
	return r
}

func (o *bodyContext) outputItem(status, text string) object {
	content := []object{}
	if status == "completed" {
		content = append(content, outputText(text))
	}
	return object{"id": o.id("msg_"), "type": "message", "role": "assistant", "status": status, "content": content}
}

func outputText(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []object{}}
}

// anthropicErrors are Anthropic's error types, by status.
var anthropicErrors = map[int]string{
	400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
	413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error", 529: "overloaded_error",
}

// openaiErrors are OpenAI's error codes, by status.
var openaiErrors = map[int]string{401: "invalid_api_key", 402: "billing_not_active", 429: "rate_limit_exceeded"}

// failure returns the body of an error, in the format of an API.
func (o *bodyContext) failure(form string) any {
	status, code := o.verdict.answer.Status, o.verdict.answer.Error
	text := o.errorMessage()
	switch form {
	case Anthropic:
		fallback := "api_error"
		if status < 500 {
			fallback = "invalid_request_error"
		}
		return object{"type": "error", "error": object{"type": cmp.Or(code, anthropicErrors[status], fallback), "message": text}, "request_id": o.id("req_")}
	case OpenAI, Responses:
		return object{"error": openaiError(status, code, text)}
	}
	return object{"error": object{"code": cmp.Or(code, snake(statusText(status))), "message": text}}
}

func openaiError(status int, code, text string) object {
	kind := "invalid_request_error"
	switch {
	case code == "insufficient_quota":
		kind = code
	case status == http.StatusTooManyRequests:
		kind = "requests"
	case status >= 500:
		kind = "server_error"
	}
	e := object{"message": text, "type": kind, "param": nil, "code": nil}
	if c := cmp.Or(code, openaiErrors[status]); c != "" {
		e["code"] = c
	}
	return e
}

// googleError returns an error in Google's format, which states a delay.
func (o *bodyContext) googleError() any {
	a := &o.verdict.answer
	names := map[int]string{400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
	return object{"error": object{
		"code": a.Status, "message": o.errorMessage(), "status": cmp.Or(a.Error, names[a.Status], "UNKNOWN"),
		"details": []object{{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": strconv.FormatFloat(a.RetryInfo.Seconds(), 'f', -1, 64) + "s"}},
	}}
}

// errorMessage returns a message that names the rule behind the error.
func (o *bodyContext) errorMessage() string {
	v := &o.verdict
	if v.Rule == 0 {
		return fmt.Sprintf("chaos: no rule matches %s %s", o.request.Method, o.request.URL.Path)
	}
	return fmt.Sprintf("chaos: %d %s: chosen by rule %d (%s, request %d)", v.answer.Status, statusText(v.answer.Status), v.Rule, v.By, v.Nth)
}

func statusText(status int) string {
	if status == 529 {
		return "Overloaded" // used by Anthropic; net/http does not know it
	}
	return cmp.Or(http.StatusText(status), "status "+strconv.Itoa(status))
}

func snake(text string) string { return strings.ReplaceAll(strings.ToLower(text), " ", "_") }

// defaultEvents is the number of events of a stream if the spec does not set it.
const defaultEvents = 10

// eventList collects the events of a stream.
type eventList struct {
	o     *bodyContext
	every time.Duration
	list  []chunk
	seq   int // next sequence number of the responses API
}

// add adds an event. An event with content has a pause before it, unless it is the first.
func (s *eventList) add(name string, data any, content bool) {
	var b bytes.Buffer
	if name != "" {
		fmt.Fprintf(&b, "event: %s\n", name)
	}
	if text, ok := data.(string); ok {
		fmt.Fprintf(&b, "data: %s\n\n", text)
	} else {
		fmt.Fprintf(&b, "data: %s\n", encode(data)) // encode has added a line end
	}
	c := chunk{data: b.Bytes(), event: content}
	if len(s.list) > 0 && content {
		c.pause = s.every
	}
	s.list = append(s.list, c)
}

// typed adds an event of the responses API. The data of such an event contains its name
// and its sequence number.
func (s *eventList) typed(name string, data object, content bool) {
	data["type"], data["sequence_number"] = name, s.seq
	s.seq++
	s.add(name, data, content)
}

// streamFormat has functions that add the parts of a stream in the format of an API.
type streamFormat struct {
	start  func() // adds the events that begin the stream
	piece  func(n int, text string)
	finish func() // adds the events after the content, up to the last
	fail   func() // adds an error
}

// events returns a stream with the properties that want sets.
func (o *bodyContext) events(form string, want Stream) payload {
	s := &eventList{o: o, every: want.Every}
	pieces := cutText(o.completionText(), cmp.Or(want.Events, defaultEvents))
	p := s.streamFormat(form, pieces)
	s.write(p, want, pieces)
	return payload{kind: "text/event-stream", chunks: s.list, stream: true}
}

// write adds the parts of the stream, and the error at the wanted position.
func (s *eventList) write(p streamFormat, want Stream, pieces []string) {
	if want.Error == "first" {
		p.fail()
		return
	}
	p.start()
	last := len(pieces)
	if want.Error != "" {
		n, _ := strconv.Atoi(want.Error) // Atoi returns 0 for "start"
		last = min(n, last)
	}
	for i, text := range pieces[:last] {
		p.piece(i, text)
	}
	switch {
	case want.Error != "":
		p.fail()
	case !want.NoDone:
		p.finish()
	}
}

// cutText cuts a text into n pieces, none of them empty. It repeats a text that is too
// short.
func cutText(text string, n int) []string {
	runes := []rune(text)
	for len(runes) < n {
		runes = append(append(runes, ' '), []rune(text)...)
	}
	pieces := make([]string, n)
	for i := range n {
		pieces[i] = string(runes[len(runes)*i/n : len(runes)*(i+1)/n])
	}
	return pieces
}

func (s *eventList) streamFormat(form string, pieces []string) streamFormat {
	switch form {
	case OpenAI:
		return s.openai()
	case Responses:
		return s.responses(pieces)
	case Anthropic:
		return s.anthropic()
	}
	return streamFormat{
		start:  func() {},
		piece:  func(n int, _ string) { s.add("", fmt.Sprintf("event %d of %d", n+1, len(pieces)), true) },
		finish: func() {},
		fail: func() {
			s.add("error", object{"error": object{"code": cmp.Or(s.o.verdict.answer.Error, "server_error"), "message": s.o.errorMessage()}}, false)
		},
	}
}

func (s *eventList) openai() streamFormat {
	part := func(delta object, reason any) object {
		return object{
			"id": s.o.id("chatcmpl-"), "object": "chat.completion.chunk", "created": s.o.now.Unix(), "model": cmp.Or(s.o.ask.model, "chaos"),
			"choices": []object{{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": reason}},
		}
	}
	return streamFormat{
		start: func() { s.add("", part(object{"role": "assistant", "content": ""}, nil), false) },
		piece: func(_ int, text string) { s.add("", part(object{"content": text}, nil), true) },
		finish: func() {
			s.add("", part(object{}, "stop"), false)
			s.add("", "[DONE]", false)
		},
		fail: func() {
			s.add("", object{"error": openaiError(500, cmp.Or(s.o.verdict.answer.Error, "server_error"), s.o.errorMessage())}, false)
		},
	}
}

func (s *eventList) anthropic() streamFormat {
	model, prompt := cmp.Or(s.o.ask.model, "chaos"), s.o.ask.prompt
	written := 0
	return streamFormat{
		start: func() {
			s.add("message_start", object{"type": "message_start", "message": object{
				"id": s.o.id("msg_"), "type": "message", "role": "assistant", "model": model, "content": []object{}, "stop_reason": nil, "stop_sequence": nil,
				"usage": object{"input_tokens": tokens(prompt), "output_tokens": 1},
			}}, false)
		},
		piece: func(n int, text string) {
			if n == 0 {
				s.add("content_block_start", object{"type": "content_block_start", "index": 0, "content_block": object{"type": "text", "text": ""}}, false)
				s.add("ping", object{"type": "ping"}, false)
			}
			written++
			s.add("content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": object{"type": "text_delta", "text": text}}, true)
		},
		finish: func() {
			s.add("content_block_stop", object{"type": "content_block_stop", "index": 0}, false)
			s.add("message_delta", object{"type": "message_delta", "delta": object{"stop_reason": "end_turn", "stop_sequence": nil}, "usage": object{"output_tokens": written}}, false)
			s.add("message_stop", object{"type": "message_stop"}, false)
		},
		fail: func() {
			s.add("error", object{"type": "error", "error": object{"type": cmp.Or(s.o.verdict.answer.Error, "overloaded_error"), "message": s.o.errorMessage()}}, false)
		},
	}
}

func (s *eventList) responses(pieces []string) streamFormat {
	o := s.o
	at := func(more object) object {
		maps.Copy(more, object{"item_id": o.id("msg_"), "output_index": 0, "content_index": 0})
		return more
	}
	text := strings.Join(pieces, "")
	return streamFormat{
		start: func() {
			s.typed("response.created", object{"response": o.response("in_progress", []object{}, 0, 0)}, false)
		},
		piece: func(n int, text string) {
			if n == 0 {
				s.typed("response.in_progress", object{"response": o.response("in_progress", []object{}, 0, 0)}, false)
				s.typed("response.output_item.added", object{"output_index": 0, "item": o.outputItem("in_progress", "")}, false)
				s.typed("response.content_part.added", at(object{"part": outputText("")}), false)
			}
			s.typed("response.output_text.delta", at(object{"delta": text, "logprobs": []object{}}), true)
		},
		finish: func() {
			s.typed("response.output_text.done", at(object{"text": text, "logprobs": []object{}}), false)
			s.typed("response.content_part.done", at(object{"part": outputText(text)}), false)
			s.typed("response.output_item.done", object{"output_index": 0, "item": o.outputItem("completed", text)}, false)
			s.typed("response.completed", object{"response": o.response("completed", []object{o.outputItem("completed", text)}, tokens(o.ask.prompt), tokens(text))}, false)
		},
		fail: func() {
			s.typed("error", object{"code": cmp.Or(o.verdict.answer.Error, "server_error"), "message": o.errorMessage(), "param": nil}, false)
		},
	}
}
