package gateway

import (
	"errors"
	"strings"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retryhttp"
)

// story says what kept the request from each of the providers that it may go to:
// how they have failed, and what was met before them.
func (r *request) describe(met []blocker) string {
	r.mu.Lock()
	failures := make([]error, len(r.targets))
	for i := range r.targets {
		failures[i] = r.targets[i].failure
	}
	r.mu.Unlock()
	var list []string
	for i := range r.targets {
		v, parts := &r.targets[i], []string(nil)
		if failures[i] != nil {
			parts = append(parts, r.g.clean(failures[i]))
		}
		for j := range met {
			if met[j].target == v {
				parts = append(parts, met[j].String())
			}
		}
		if len(parts) == 0 {
			continue
		}
		role := "fallback "
		if i == 0 {
			role = "provider "
		}
		list = append(list, role+v.p.spec.Name+": "+strings.Join(parts, "; now "))
	}
	if r.withheld {
		list = append(list, "a fallback was not asked: "+withheldWhy)
	}
	return strings.Join(list, "; ")
}

// String says what is in the way, behind the name of the provider.
func (b *blocker) String() string {
	switch b.kind {
	case forbidden:
		if b.mode == openedByHand {
			return "opened by hand"
		}
		return "draining"
	case noOther:
		return "none of its keys was let in"
	case keysThrottled, keysRejected:
		why := b.target.p.keys.blockReasons(b.of)
		if text := why.String(); text != "" {
			text = "its keys were " + text + ", the first for " + textfmt.RoundDuration(b.wait).String()
			if b.next > 0 && b.next < b.wait {
				text += ", next probe in " + textfmt.RoundDuration(b.next).String()
			}
			return text
		}
		return "its keys were told to wait" // a moment ago
	case full:
		return fullness(b.err)
	default:
		return "down, and the next look is in " + textfmt.RoundDuration(b.wait).String()
	}
}

// fullness says what a gate or a limit did.
func fullness(err error) string {
	if shut, ok := errors.AsType[*health.ClosedError](err); ok {
		return "down, and the next look is in " + textfmt.RoundDuration(shut.Next).String()
	}
	if rate, ok := errors.AsType[*limit.RateError](err); ok {
		return "its rate leaves no room for " + textfmt.RoundDuration(rate.Wait).String()
	}
	switch {
	case errors.Is(err, limit.ErrQueueFull):
		return "too many requests wait for it"
	case errors.Is(err, limit.ErrShed):
		return "the request had to make room for a more urgent one"
	}
	return "the wait was given up"
}

// clean returns the text of an error as it may be shown: without secrets, and with
// nothing said twice.
func (g *Gateway) clean(err error) string { return hinted(undoubled(g.redact(err.Error()))) }

// hinted says what our users can do about a request that is not sent again, where the
// library says what its users can.
func hinted(text string) string {
	why := retryhttp.ErrNotIdempotent.Error()
	before, after, ok := strings.Cut(text, why)
	if !ok {
		return text
	}
	if hint, rest, ok := strings.Cut(after, ")"); ok && strings.HasPrefix(hint, " (") {
		after = rest
	}
	return before + why + " (give it an Idempotency-Key, or set retry-posts or repeatable)" + after
}

// undoubled takes out of a chain of causes what repeats the one before it, or says
// once more that a context has ended.
func undoubled(text string) string {
	const sep = ": "
	if !strings.Contains(text, sep) {
		return text
	}
	parts := strings.Split(text, sep)
	list := parts[:1]
	for _, p := range parts[1:] {
		ended := (p == "context deadline exceeded" || p == "context canceled") && strings.Contains(strings.Join(list, sep), p)
		if p != list[len(list)-1] && !ended {
			list = append(list, p)
		}
	}
	return strings.Join(list, sep)
}
