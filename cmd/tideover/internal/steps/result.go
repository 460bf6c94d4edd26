package steps

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
)

// result is what is kept of a step that succeeded.
type result struct {
	Stdout    string          `json:"stdout,omitempty"` // a command's, or the body of a response
	Stderr    string          `json:"stderr,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"` // what Stdout is as JSON
	Exit      int             `json:"exit,omitempty"`
	Status    int             `json:"status,omitempty"`
	Truncated bool            `json:"truncated,omitempty"` // not all was kept
}

// maxResult is the size of a result, and less than what the engine keeps.
const maxResult = 240 << 10

// encode returns the result as JSON. If that is too large, less of the outputs
// is kept.
func (r result) encode() ([]byte, error) {
	if out := strings.TrimSpace(r.Stdout); !r.Truncated && len(out) > 0 && json.Valid([]byte(out)) {
		r.Output = json.RawMessage(out)
	}
	for {
		text, err := json.Marshal(r)
		if err != nil || len(text) <= maxResult {
			return text, err
		}
		if r.Output != nil && len(r.Output)+len(r.Stdout) > maxResult {
			r.Output = nil // it is in Stdout too
			continue
		}
		r.Output, r.Truncated = nil, true
		if len(r.Stderr) > len(r.Stdout)/4 {
			r.Stderr = cut(r.Stderr, len(r.Stderr)/2)
		} else {
			r.Stdout = cut(r.Stdout, len(r.Stdout)*3/4)
		}
	}
}

// cut cuts a text between two characters.
func cut(s string, n int) string {
	for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:min(n, len(s))]
}

// stepResult returns a kept result as templates see it.
func stepResult(text []byte) (config.StepResult, error) {
	var r result
	if err := json.Unmarshal(text, &r); err != nil {
		return config.StepResult{}, err
	}
	out := config.StepResult{Stdout: r.Stdout, Stderr: r.Stderr, Exit: r.Exit, Status: r.Status}
	if r.Output != nil {
		_ = json.Unmarshal(r.Output, &out.Output) // it was valid when it was kept
	}
	return out, nil
}

// capped keeps the first bytes that are written to it.
type capped struct {
	data  []byte
	limit int
	over  bool
}

func (c *capped) Write(p []byte) (int, error) {
	if room := c.limit - len(c.data); room < len(p) {
		c.over = true
		c.data = append(c.data, p[:max(room, 0)]...)
	} else {
		c.data = append(c.data, p...)
	}
	return len(p), nil
}

// text returns what was kept, as text.
func (c *capped) text() string { return strings.ToValidUTF8(string(c.data), "\uFFFD") }

// tail keeps the last bytes that are written to it, for an error.
type tail struct {
	data []byte
}

const tailSize = 2 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if len(t.data) > 2*tailSize {
		t.data = append(t.data[:0], t.data[len(t.data)-tailSize:]...)
	}
	return len(p), nil
}

// lines returns the last few lines.
func (t *tail) lines() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.data[max(0, len(t.data)-tailSize):]), "\uFFFD"))
	list := strings.Split(text, "\n")
	return strings.Join(list[max(0, len(list)-5):], "\n")
}
