package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tideover/tideover/cmd/tideover/internal/audit"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/metrics"
	"github.com/tideover/tideover/cmd/tideover/internal/outbox"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/cmd/tideover/internal/timeseries"
	"github.com/tideover/tideover/cmd/tideover/internal/tracing"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/retry"
)

// observer receives the events of the engine and of the gateway. It passes them to the log, the
// audit trail, the metrics, the tracing exporter and the notifiers, and detects retry storms.
type observer struct {
	log         *slog.Logger
	audit       *audit.Sink       // nil if it is disabled
	spans       *tracing.Exporter // nil if tracing is not configured
	stopTracing func()
	tally       *metrics.Tally
	alarm       *storm.Alarm
	charts      *timeseries.Store // nil for a gateway alone

	gateway *gateway.Gateway // its attempts count for retry storms
	outbox  *outbox.Outbox   // sends messages about events; nil for a gateway alone

	// engine is nil for a gateway alone, and until the engine is open. It is atomic because the
	// first steps may send requests through the gateway while the engine is being opened.
	engine atomic.Pointer[engine.Engine]
}

// newObserver opens the audit trail and starts the tracing exporter. The caller must close the
// observer after all parts that send events to it.
func newObserver(ctx context.Context, o Options, cfg *config.Config) (_ *observer, err error) {
	b := &observer{log: o.Log, tally: metrics.NewTally(), stopTracing: func() {}}
	b.alarm = storm.New(cfg.Alarm, b.attempts, b.reportStorm)
	if !o.Gateway {
		b.charts = timeseries.Open(filepath.Join(cfg.Server.Data, "charts.json.gz"), o.Log)
	}
	if a := cfg.Audit; !a.Off {
		b.audit, err = audit.Open(audit.Config{Path: a.File, MaxSize: a.MaxSize, Keep: a.Keep, Redactor: o.Source.Redactor, Logger: o.Log})
		if err != nil {
			return nil, err
		}
		b.audit.Record(audit.Entry{Kind: audit.ConfigLoaded, Note: "start", Digest: cfg.Digest()})
	}
	if cfg.Tracing != nil {
		b.spans, err = tracing.New(tracing.Options{
			Config: cfg.Tracing, Secrets: cfg.Secrets(), Redact: o.Source.Redactor.String, Version: o.Version, Logger: o.Log,
		})
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		var running sync.WaitGroup
		running.Go(func() { _ = b.spans.Run(ctx) }) // returns only when its context ends
		b.stopTracing = func() { cancel(); running.Wait() }
	}
	return b, nil
}

// close sends the last spans, stores the charts and closes the audit trail.
func (b *observer) close() error {
	b.stopTracing()
	b.charts.Close()
	if b.audit == nil {
		return nil
	}
	return b.audit.Close()
}

// recordAccess records a refused request or a login in the audit trail.
func (b *observer) recordAccess(a httpserver.Access) {
	kind := audit.RequestRefused
	if a.Login {
		kind = audit.LoggedIn
	}
	b.audit.Record(audit.Entry{Kind: kind, By: a.By, From: a.From, Method: a.Method, Path: a.Path, Status: a.Status, Note: a.Reason})
}

// recordRefused records a request that the gateway refused.
func (b *observer) recordRefused(r *http.Request, status int, reason string) {
	b.recordAccess(httpserver.NewAccess(r, "", status, "gateway: "+reason))
}

// recordProviderAction records that a user changed the state of a provider.
func (b *observer) recordProviderAction(name, action, by string) {
	b.audit.Record(audit.Entry{Kind: audit.ProviderChanged, Name: name, Note: action, By: by})
}

// auditFindings returns the findings about the audit trail.
func (b *observer) auditFindings() (list []doctor.Finding) {
	if err := b.audit.Err(); err != nil {
		list = append(list, doctor.Finding{
			Severity: journal.Weak, What: "the audit trail can't be written", Why: err.Error(),
			Do: "make room on the disk, or correct the folder; the server retries, and drops lines when its queue is full",
		})
	}
	if d := b.audit.Drops(); d.Late > 0 {
		list = append(list, doctor.Finding{
			Severity: journal.Weak, What: fmt.Sprintf("the audit trail lacks %d lines since the start", d.Late),
			Why: "they could not be written in time", Do: "put audit.file on a faster disk, or make room on it",
		})
	}
	if d := b.audit.Drops(); d.Limited > 0 {
		list = append(list, doctor.Finding{
			Severity: journal.Note, What: fmt.Sprintf("the audit trail lacks %d refused requests or logins since the start", d.Limited),
			Why: "there were more than 100 at once, and more than one per second after that",
			Do:  "look at the lines request-refused in the audit trail: which addresses send them",
		})
	}
	return list
}

// auditCollector collects how many lines the audit trail lacks. Without an audit trail it collects
// nothing.
type auditCollector struct{ *audit.Sink }

var metricAuditDropped = prometheus.NewDesc("tideover_audit_dropped_total", "Lines that the audit trail lacks since the start, by reason: late or limited.", []string{"reason"}, nil)

// Describe implements [prometheus.Collector].
func (auditCollector) Describe(ch chan<- *prometheus.Desc) { ch <- metricAuditDropped }

// Collect implements [prometheus.Collector].
func (c auditCollector) Collect(ch chan<- prometheus.Metric) {
	if c.Sink == nil {
		return
	}
	d := c.Drops()
	ch <- prometheus.MustNewConstMetric(metricAuditDropped, prometheus.CounterValue, float64(d.Late), "late")
	ch <- prometheus.MustNewConstMetric(metricAuditDropped, prometheus.CounterValue, float64(d.Limited), "limited")
}

// addWorkflows makes the metrics count these workflows under their own names.
func (b *observer) addWorkflows(workflows []*engine.Workflow) {
	for _, w := range workflows {
		b.tally.Know(w.Name())
	}
}

// publish sends an event of the gateway, or about a retry storm, to all subscribers of the engine's
// events; observe is one of them. Without an engine it only records the event.
func (b *observer) publish(ev retry.Event) {
	if e := b.engine.Load(); e != nil {
		e.Tell(ev)
	} else {
		b.record(ev)
	}
}

// record passes an event to the audit trail and the tracing exporter.
func (b *observer) record(ev retry.Event) {
	if b.audit != nil {
		b.audit.Observe(ev)
	}
	if b.spans != nil {
		b.spans.Observe(ev)
	}
}

// observe receives every event of the engine. It logs each failed attempt, the wait that follows
// it, and the end of a run.
func (b *observer) observe(ev retry.Event) {
	b.record(ev)
	b.tally.Observe(ev)
	b.outbox.Observe(ev)
	if !control.Internal(ev.Name) {
		b.charts.Observe(ev)
	}
	if strings.HasPrefix(ev.Name, gateway.EventPrefix) {
		return // the gateway has its own log lines
	}
	level, text := slog.LevelDebug, ev.Kind.String()
	switch ev.Kind {
	case retry.Waiting:
		level, text = slog.LevelInfo, "waiting"
	case retry.AttemptFailed:
		level, text = slog.LevelInfo, "attempt failed"
	case retry.GaveUp:
		if ev.Step == "" { // the event of the step has the same error as that of the run
			level = slog.LevelError
		}
	case retry.AttemptLost, retry.NeedsHandler, retry.AttemptStuck:
		level = slog.LevelWarn
	default:
	}
	ctx := context.Background()
	if !b.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("workflow", ev.Name), slog.String("run", ev.Run)}
	add := func(ok bool, a slog.Attr) {
		if ok {
			attrs = append(attrs, a)
		}
	}
	add(ev.Step != "", slog.String("step", ev.Step))
	add(ev.Attempt > 0, slog.Int("attempt", ev.Attempt))
	add(ev.Kind == retry.Waiting, slog.Duration("delay", ev.Delay.Round(time.Millisecond)))
	add(ev.Kind == retry.Waiting, slog.String("set_by", ev.By.String()))
	add(ev.Reason != 0, slog.String("reason", ev.Reason.String()))
	add(ev.Err != nil, slog.String("error", firstLine(ev.Err)))
	add(ev.Note != "", slog.String("note", ev.Note))
	b.log.LogAttrs(ctx, level, text, attrs...)
}

// firstLine returns the first line of an error. The rest, such as the stack of a panic, is on the
// page of the run.
func firstLine(err error) string {
	if err == nil {
		return ""
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// attempts returns the numbers of attempts of all workflows and providers since the start.
func (b *observer) attempts() map[storm.Subject]storm.Count {
	counts := b.tally.Counts()
	for name, l := range b.gateway.Loads() {
		counts[storm.Subject{Layer: metrics.Provider, Name: name}] = storm.Count{Attempts: l.Sent, First: l.Requests}
	}
	return counts
}

// reportStorm logs the beginning or the end of a retry storm, and publishes an event.
func (b *observer) reportStorm(c storm.Change) {
	text := "retry storm"
	if c.Ended {
		text = "the retry storm is over"
	}
	b.log.Warn(text, "layer", c.Layer, "name", c.Name, "amplification", c.Amplification, "attempts", c.Attempts, "since", c.Since)
	name := metrics.WorkflowOf(c.Subject)
	if c.Layer == metrics.Provider {
		name = gateway.EventPrefix + c.Name
	}
	b.publish(c.Event(name, time.Now()))
}
