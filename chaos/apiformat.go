package chaos

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// object is JSON as it is written; keys come in alphabetical order.
type object map[string]any

// completionText is the answer to a prompt: it repeats the prompt.
func (o *bodyContext) completionText() string { return "You said: " + o.ask.prompt }

// tokens is what a text costs, roughly.
func tokens(text string) int { return len(strings.Fields(text)) }

func (o *bodyContext) id(prefix string) string {
	return prefix + "chaos" + strconv.Itoa(o.verdict.number)
}

// completion is the answer to a prompt, in the format of an API.
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

// response is the object of the responses API.
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

// anthropicErrors are the types of errors, by status.
var anthropicErrors = map[int]string{
	400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
	413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error", 529: "overloaded_error",
}

// openaiErrors are the codes of errors, by status.
var openaiErrors = map[int]string{401: "invalid_api_key", 402: "billing_not_active", 429: "rate_limit_exceeded"}

// failure is the body of an error, in the format of an API.
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

// googleError states a delay in the body.
func (o *bodyContext) googleError() any {
	a := &o.verdict.answer
	names := map[int]string{400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
	return object{"error": object{
		"code": a.Status, "message": o.errorMessage(), "status": cmp.Or(a.Error, names[a.Status], "UNKNOWN"),
		"details": []object{{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": strconv.FormatFloat(a.RetryInfo.Seconds(), 'f', -1, 64) + "s"}},
	}}
}

// errorMessage says which rule caused the error.
func (o *bodyContext) errorMessage() string {
	v := &o.verdict
	if v.rule < 0 {
		return fmt.Sprintf("chaos: no rule is for %s %s", o.request.Method, o.request.URL.Path)
	}
	return fmt.Sprintf("chaos: %d %s: rule %d wants it so (%s, request %d)", v.answer.Status, statusText(v.answer.Status), v.rule+1, v.by, v.nth)
}

func statusText(status int) string {
	if status == 529 {
		return "Overloaded" // known to Anthropic only
	}
	return cmp.Or(http.StatusText(status), "status "+strconv.Itoa(status))
}

func snake(text string) string { return strings.ReplaceAll(strings.ToLower(text), " ", "_") }
