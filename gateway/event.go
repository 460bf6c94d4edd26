package gateway

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// EventPrefix is what the names of the gateway's events begin with; the name of the
// provider follows.
const EventPrefix = "gateway/"

// observe reads the events of the requests that were made for the provider.
func (p *provider) observe(ev retry.Event) {
	switch ev.Kind {
	case retry.AttemptStarted:
		return
	case retry.Succeeded:
		if ev.Attempt < 2 {
			return // what goes right at once is no news
		}
	case retry.Waiting:
		if ev.Delay == 0 && ev.By == retry.BySchedule {
			p.stats.retries.add("at-once", 1)
			return // no wait; that another provider takes over is told by itself
		}
		p.stats.retries.add(ev.By.String(), 1)
		p.stats.waits.add(ev.By.String(), ev.Delay.Seconds())
	case retry.HedgeStarted:
		p.stats.hedges.Add(1)
	default:
	}
	p.gateway.emit(ev)
}

// emit logs the event, with what else the line may say, and shows it to the observer,
// without secrets.
func (g *Gateway) emit(ev retry.Event, more ...slog.Attr) {
	was := ev.Err
	if ev.Err != nil {
		// Not wrapped: whoever looks inside would find what was taken out.
		// What is quoted is what a server said, who may repeat a caller's credentials.
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

// sampleKey is what makes two events the same in the log.
type sampleKey struct {
	kind retry.EventKind
	name string // whose request it is
	why  string
}

// sampleEvent reports whether the event is the first with its key for a while, and how
// many were not since the one before.
func (g *Gateway) sampleEvent(ev *retry.Event) (first bool, suppressed int) {
	key := sampleKey{ev.Kind, ev.Name, ev.Note}
	if ev.Kind == retry.Waiting {
		key.why = ev.By.String() // errors have ports and times in them
	}
	return g.sampler.Allow(key, time.Now())
}
