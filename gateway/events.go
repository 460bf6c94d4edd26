package gateway

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// EventPrefix is the beginning of the names of the gateway's events. The name of the
// provider follows.
const EventPrefix = "gateway/"

// observe counts and publishes the events of the provider's requests.
func (p *provider) observe(ev retry.Event) {
	switch ev.Kind {
	case retry.AttemptStarted:
		return
	case retry.Succeeded:
		if ev.Attempt < 2 {
			return // a success at once is no event
		}
	case retry.Waiting:
		if ev.Delay == 0 && ev.By == retry.BySchedule {
			p.stats.retries.add("at-once", 1)
			return // no wait; a failover has an event of its own
		}
		p.stats.retries.add(ev.By.String(), 1)
		p.stats.waits.add(ev.By.String(), ev.Delay.Seconds())
	case retry.HedgeStarted:
		p.stats.hedges.Add(1)
	default:
	}
	p.gateway.emit(ev)
}

// emit logs the event with more attributes and calls the observer, without secrets.
func (g *Gateway) emit(ev retry.Event, more ...slog.Attr) {
	was := ev.Err
	if ev.Err != nil {
		// Not wrapped: Unwrap would return the secrets. Quotations are text of a server,
		// which may repeat the credentials of a caller.
		ev.Err = errors.New(secret.Unquoted(g.clean(ev.Err)))
	}
	if _, ok := errors.AsType[retry.Noted](was); ok {
		at, path, _ := strings.Cut(ev.Note, "/")
		ev.Note = g.redact(at + withoutIDs("/"+path)) // as routes are shown
	}
	g.logEvent(&ev, more)
	if g.options.Observer != nil {
		g.options.Observer(ev)
	}
}

func (g *Gateway) logEvent(ev *retry.Event, also []slog.Attr) {
	level, more := slog.LevelInfo, 0
	switch ev.Kind {
	case retry.BreakerOpened, retry.GaveUp, retry.HookFailed:
		level = slog.LevelWarn
	case retry.AttemptFailed, retry.Succeeded, retry.HedgeStarted:
		level = slog.LevelDebug
	case retry.Waiting, retry.FailedOver:
		var first bool
		if first, more = g.sampleEvent(ev); !first {
			level = slog.LevelDebug
		}
	default:
	}
	ctx := context.Background()
	if !g.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("name", ev.Name)}
	add := func(ok bool, a slog.Attr) {
		if ok {
			attrs = append(attrs, a)
		}
	}
	add(ev.Call > 0, slog.Uint64("call", ev.Call)) // the same in all lines of a request
	add(ev.Attempt > 0, slog.Int("attempt", ev.Attempt))
	add(ev.Delay > 0, slog.Duration("delay", ev.Delay.Round(time.Millisecond)))
	add(ev.Kind == retry.Waiting, slog.String("by", ev.By.String()))
	add(ev.Reason != 0, slog.String("reason", ev.Reason.String()))
	add(ev.Note != "", slog.String("note", ev.Note))
	if ev.Err != nil {
		attrs = append(attrs, slog.String("error", ev.Err.Error()))
	}
	attrs = append(attrs, also...)
	add(more > 0, slog.Int("suppressed", more))
	g.log.LogAttrs(ctx, level, ev.Kind.String(), attrs...)
}

// sampleKey is equal for events that count as the same in the log.
type sampleKey struct {
	kind retry.EventKind
	name string // whose request it is
	why  string
}

// sampleEvent reports whether the event is to be logged as the first of its key, and how
// many were suppressed since the one before.
func (g *Gateway) sampleEvent(ev *retry.Event) (first bool, suppressed int) {
	key := sampleKey{ev.Kind, ev.Name, ev.Note}
	if ev.Kind == retry.Waiting {
		key.why = ev.By.String() // errors have ports and times in them
	}
	return g.sampler.Allow(key, time.Now())
}

// describe returns for each target of the request how it failed, and what blocks it now.
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

// String describes the blocker. The name of the provider comes before it.
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

// fullness describes the error of a gate or a limit.
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

// clean returns the text of an error without secrets and without repetitions.
func (g *Gateway) clean(err error) string { return hinted(undoubled(g.redact(err.Error()))) }

// hinted replaces the hint of the library about a request that is not repeated with the
// settings of the gateway.
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

// undoubled removes from a chain of causes those that repeat the one before, and further
// mentions of an ended context.
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
