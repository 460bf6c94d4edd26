package retryhttp

import (
	"encoding/json"
	"slices"
	"time"
)

// quotaCodes say that no wait of ours will help: quota or credit is gone. They
// are compared with fields that hold codes, never looked for in messages.
var quotaCodes = []string{
	"insufficient_quota",           // OpenAI and those who speak its language
	"billing_hard_limit_reached",   // OpenAI
	"billing_not_active",           // OpenAI
	"exceeded_current_quota_error", // Moonshot
	"insufficient_credits",
	"insufficient_balance",
	"billing_error", // Anthropic
}

// problem is what the body of an error says to a machine.
type problem struct {
	codes  []string
	status int    // a code that is a number
	delay  string // RetryInfo.retryDelay
}

// parseProblem reads the JSON body of an error. Anything else says nothing.
func parseProblem(body []byte) (p problem) {
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0] // Gemini's streams answer with a list
	}
	var outer struct {
		Error json.RawMessage `json:"error"`
		Code  any             `json:"code"`
		Type  any             `json:"type"`
	}
	if json.Unmarshal(body, &outer) != nil {
		return p
	}
	p.add(outer.Code, outer.Type)
	var inner struct {
		Code    any `json:"code"`
		Type    any `json:"type"`
		Details []struct {
			Type  string `json:"@type"`
			Delay string `json:"retryDelay"`
		} `json:"details"`
	}
	var code any
	_ = json.Unmarshal(outer.Error, &inner) // what does not fit stays empty
	_ = json.Unmarshal(outer.Error, &code)
	p.add(inner.Code, inner.Type, code)
	for _, d := range inner.Details {
		if d.Type == "type.googleapis.com/google.rpc.RetryInfo" {
			p.delay = d.Delay
		}
	}
	return p
}

func (p *problem) add(codes ...any) {
	for _, c := range codes {
		switch c := c.(type) {
		case string:
			p.codes = append(p.codes, c)
		case float64:
			p.status = int(c)
		}
	}
}

// quota returns the code which says that quota or credit is gone, or "".
func (p *problem) quota() string {
	for _, c := range p.codes {
		if slices.Contains(quotaCodes, c) {
			return c
		}
	}
	return ""
}

// retryDelay returns the delay that the body states.
func (p *problem) retryDelay() (time.Duration, bool) {
	d, err := time.ParseDuration(p.delay)
	return max(d, 0), err == nil && d >= 0
}
