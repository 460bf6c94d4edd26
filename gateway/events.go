package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/logsample"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// EventPrefix is the first part of the names of the gateway's events. The name of the
// provider follows.
const EventPrefix = "gateway/"

// reporter emits events and writes the log, both without secrets.
type reporter struct {
	log      *slog.Logger
	sampler  logsample.Sampler[sampleKey] // limits repeated log lines
	secrets  secret.Redactor
	more     func(string) string // Options.Redact
	observer func(retry.Event)   // Options.Observer
}

// emit logs the event with further attributes and calls the observer, without secrets.
func (r *reporter) emit(ev retry.Event, more ...slog.Attr) {
	was := ev.Err
	if ev.Err != nil {
		// The error is not wrapped, because Unwrap would return the secrets. Unquoted removes
		// quoted text of a server, which may repeat the credentials of a caller.
		ev.Err = errors.New(secret.Unquoted(r.clean(ev.Err)))
	}
	if _, ok := errors.AsType[retry.Noted](was); ok {
		at, path, _ := strings.Cut(ev.Note, "/")
		ev.Note = r.redact(at + withoutIDs("/"+path)) // in the form in which routes are shown
	}
	r.logEvent(&ev, more)
	if r.observer != nil {
		r.observer(ev)
	}
}

func (r *reporter) logEvent(ev *retry.Event, also []slog.Attr) {
	level, more := slog.LevelInfo, 0
	switch ev.Kind {
	case retry.BreakerOpened, retry.GaveUp, retry.HookFailed:
		level = slog.LevelWarn
	case retry.AttemptFailed, retry.Succeeded, retry.HedgeStarted:
		level = slog.LevelDebug
	case retry.Waiting, retry.FailedOver:
		var first bool
		if first, more = r.sampleEvent(ev); !first {
			level = slog.LevelDebug
		}
	default:
	}
	ctx := context.Background()
	if !r.log.Enabled(ctx, level) {
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
	r.log.LogAttrs(ctx, level, ev.Kind.String(), attrs...)
}

// sampleKey is equal for events that count as repetitions in the log.
type sampleKey struct {
	kind retry.EventKind
	name string // name of the event, which has the provider
	why  string
}

// sampleEvent reports whether to log the event as the first of its key, and how
// many were suppressed since the last one.
func (r *reporter) sampleEvent(ev *retry.Event) (first bool, suppressed int) {
	key := sampleKey{ev.Kind, ev.Name, ev.Note}
	if ev.Kind == retry.Waiting {
		key.why = ev.By.String() // not the error, which may have ports and times
	}
	return r.sampler.Allow(key, time.Now())
}

// redact returns the text without secrets.
func (r *reporter) redact(text string) string {
	text = r.secrets.String(text)
	if r.more != nil {
		text = r.more(text)
	}
	return text
}

// clean returns the text of an error without secrets and without repetitions.
func (r *reporter) clean(err error) string { return hinted(undoubled(r.redact(err.Error()))) }

// hinted replaces the hint of retryhttp on how to make a request repeatable by a hint on
// the settings of the gateway.
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

// undoubled removes repetitions from the text of an error. Of the parts between ": ", it
// drops each that equals the part before it, and each "context canceled" or "context
// deadline exceeded" that the text before it already contains.
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

// redactedError is an error of net/http without credentials. net/http quotes the part of a
// response that it can't parse, and a server may repeat credentials there. The gateway
// removes its own keys from all texts. It knows the credentials of a caller only during
// the request, but the quoted text may have those of another caller, so it removes the
// quoted text.
type redactedError struct {
	err  error
	text string
}

// Error returns the text without credentials.
func (e *redactedError) Error() string { return e.text }

// Unwrap returns the original error.
func (e *redactedError) Unwrap() error { return e.err }

// minSecret is the shortest value that counts as a secret if its header or parameter is
// unknown. Shorter values are usually numbers and flags.
const minSecret = 4

// redactError returns the error without quotations, and without the values of the
// request's headers and query parameters that are not known to be harmless.
func redactError(err error, req *http.Request) error {
	var secrets secret.Redactor
	add := func(known bool, values ...string) {
		for _, v := range values {
			if known || len(v) >= minSecret {
				secrets.Add(v)
			}
		}
	}
	for name, values := range req.Header {
		if forwardedHeaders[name] {
			continue
		}
		for _, v := range values {
			_, behind, _ := strings.Cut(v, " ") // the part after a scheme such as Bearer
			add(isCredential(name), v, behind)
		}
	}
	for _, c := range req.Cookies() {
		secrets.Add(c.Value)
	}
	for pair := range strings.FieldsFuncSeq(req.URL.RawQuery, func(r rune) bool { return r == '&' || r == ';' }) {
		written, v, _ := strings.Cut(pair, "=")
		if name := parameterName(written); !forwardedQuery[name] {
			add(secret.IsQuery(name), v, unescaped(v))
		}
	}
	said := err.Error()
	text := secret.Unquoted(secrets.String(said))
	if text == said {
		return err
	}
	return &redactedError{err, text}
}
