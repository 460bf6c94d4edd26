package chaos

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// defaultEvents is how many events a stream has if nothing is said.
const defaultEvents = 10

// eventList collects the events of a stream.
type eventList struct {
	o     *bodyContext
	every time.Duration
	list  []chunk
	seq   int // of the responses API
}

// add adds an event. One with content comes after a pause, unless it is the first.
func (s *eventList) add(name string, data any, content bool) {
	var b bytes.Buffer
	if name != "" {
		fmt.Fprintf(&b, "event: %s\n", name)
	}
	if text, ok := data.(string); ok {
		fmt.Fprintf(&b, "data: %s\n\n", text)
	} else {
		fmt.Fprintf(&b, "data: %s\n", encode(data)) // which ends with a line end
	}
	c := chunk{data: b.Bytes(), event: content}
	if len(s.list) > 0 && content {
		c.pause = s.every
	}
	s.list = append(s.list, c)
}

// typed adds an event of the responses API, which has its name and number in it.
func (s *eventList) typed(name string, data object, content bool) {
	data["type"], data["sequence_number"] = name, s.seq
	s.seq++
	s.add(name, data, content)
}

// streamFormat writes the parts of a stream in the format of an API.
type streamFormat struct {
	start  func() // the events that begin it
	piece  func(n int, text string)
	finish func() // what comes after the content, the event that says so included
	fail   func() // an error
}

// events makes a stream.
func (o *bodyContext) events(form string, want Stream) payload {
	s := &eventList{o: o, every: want.Every}
	pieces := cutText(o.completionText(), cmp.Or(want.Events, defaultEvents))
	p := s.streamFormat(form, pieces)
	s.write(p, want, pieces)
	return payload{kind: "text/event-stream", chunks: s.list, stream: true}
}

// write writes the stream, and the error where it is wanted.
func (s *eventList) write(p streamFormat, want Stream, pieces []string) {
	if want.Error == "first" {
		p.fail()
		return
	}
	p.start()
	last := len(pieces)
	if want.Error != "" {
		n, _ := strconv.Atoi(want.Error) // start is 0
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

// cutText cuts a text into so many pieces, none of them empty; one that is too
// short for that is repeated.
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
