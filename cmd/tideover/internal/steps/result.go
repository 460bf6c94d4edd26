package steps

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/output"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
)

// result is the stored result of a step that succeeded.
type result struct {
	Stdout    string `json:"stdout,omitempty"` // standard output of a command, or the body of a response
	Stderr    string `json:"stderr,omitempty"`
	Exit      int    `json:"exit,omitempty"`
	Status    int    `json:"status,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`    // Stdout or Stderr is truncated
	Whole     bool   `json:"stdout_whole,omitempty"` // only Stderr is truncated; always false in results of older releases
}

// maxResult is the most bytes of a result as JSON. It is less than MaxPayload. A quarter
// of it is for stderr.
const maxResult = 480 << 10

// MaxPayload is the payload size that an engine must allow for these steps.
const MaxPayload = 512 << 10

// limitOf returns how many bytes of stdout, and of stderr, are kept for a step.
func limitOf(s *Step) int { return int(cmp.Or(s.OutputLimit, 64<<10)) }

// encode returns the result as JSON. It truncates texts that become too large as JSON,
// where a control character needs up to 6 bytes.
func (r result) encode() ([]byte, error) {
	var cut1, cut2 bool
	r.Stdout, cut1 = fit(r.Stdout, maxResult*3/4)
	r.Stderr, cut2 = fit(r.Stderr, maxResult/4)
	whole := (r.Whole || !r.Truncated) && !cut1
	r.Truncated = r.Truncated || cut1 || cut2
	r.Whole = r.Truncated && whole
	return template.EncodeJSON(r)
}

// fit truncates a text so that it needs at most size bytes inside a JSON string. It
// reports whether it has truncated the text.
func fit(s string, size int) (string, bool) {
	n := 0
	for i, c := range s {
		switch {
		case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t':
			n += 2
		case c < ' ' || c == '\u2028' || c == '\u2029':
			n += 6
		default:
			n += utf8.RuneLen(c)
		}
		if n > size {
			return s[:i], true
		}
	}
	return s, false
}

// stepResult decodes a stored result for templates.
func stepResult(text []byte) (StepResult, error) {
	var r result
	if err := json.Unmarshal(text, &r); err != nil {
		return StepResult{}, err
	}
	out := StepResult{Stdout: r.Stdout, Stderr: r.Stderr, Exit: r.Exit, Status: r.Status, Truncated: r.Truncated}
	if !r.Truncated {
		if v, err := decode([]byte(r.Stdout)); err == nil {
			out.Output = v
		}
	}
	return out, nil
}

// Text returns the standard output of a command or the body of a response from a stored
// result. whole is false if it is truncated. ok is false if kept is not the result of one
// step.
func Text(kept []byte) (text string, whole, ok bool) {
	var r result
	dec := json.NewDecoder(bytes.NewReader(kept))
	dec.DisallowUnknownFields()
	if dec.Decode(&r) != nil {
		return "", false, false
	}
	return r.Stdout, r.Whole || !r.Truncated, true
}

// decode decodes one JSON value, with numbers as [json.Number]. An empty text is nil.
func decode(text []byte) (v any, err error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errTrailing
	}
	return v, nil
}

// beginning returns the first bytes of a stream as valid UTF-8, up to the limit, and whether there were more.
func beginning(c *output.Capture) (text string, more bool) {
	b, more := c.Beginning()
	return strings.ToValidUTF8(string(b), "\uFFFD"), more
}
