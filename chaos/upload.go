package chaos

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"strings"
)

// maxHead is how much of a request's body is looked into.
const maxHead = 1 << 20

// upload is the body of a request: its length, its hash, and its beginning.
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

// modelRequest is what a request to an API of a model wants.
type modelRequest struct {
	model  string
	prompt string
	stream bool
}

// modelRequest reads the request, as far as it is one.
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
	_ = json.Unmarshal(u.head, &body) // what does not fit stays empty
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
// list of messages, of which the last counts. Lists may nest so deep.
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
