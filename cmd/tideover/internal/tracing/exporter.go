package tracing

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

const (
	maxBuffer = 8192             // spans that can wait to be sent; further spans are dropped
	maxBatch  = 512              // spans in one request
	pause     = 2 * time.Second  // time between two flushes, unless a batch is full
	sendTime  = 10 * time.Second // timeout of one attempt to send a batch
	lastTime  = 2 * time.Second  // time to send the last spans when the server shuts down
)

// sends is the retry policy for sending a batch.
const sends = "exponential(1s..30s) jitter=full attempts=5 server-wait=1m"

// Exporter converts events to spans, and sends them. It never blocks the caller: it drops
// spans that it can't send in time, and logs their number.
type Exporter struct {
	url     string
	headers http.Header
	version string
	redact  func(string) string
	log     *slog.Logger
	client  *http.Client
	full    chan struct{} // signals Run that a batch is full; buffer of one

	mu      sync.Mutex
	fold    *Fold
	spans   []Span // that wait to be sent
	dropped int    // spans that were dropped since the last log line
}

// Config says where to send spans.
type Config struct {
	Endpoint *template.SecretText   // base URL of an OTLP/HTTP receiver
	Headers  []template.NamedSecret // sent with each request, sorted by name
}

// Options configures an [Exporter].
type Options struct {
	Config  *Config
	Secrets secret.Resolver
	Redact  func(string) string // removes secrets from texts
	Version string
	Logger  *slog.Logger
}

// New returns an exporter. It collects spans, but sends them only while [Exporter.Run] runs.
func New(o Options) (*Exporter, error) {
	base, err := o.Config.Endpoint.Resolve(o.Secrets)
	if err != nil {
		return nil, fmt.Errorf("tracing.endpoint: %w", err)
	}
	x := &Exporter{
		url: strings.TrimSuffix(base.Reveal(), "/") + "/v1/traces", headers: http.Header{"Content-Type": {"application/json"}},
		version: o.Version, redact: o.Redact, log: o.Logger, full: make(chan struct{}, 1), fold: NewFold(rand.Text()),
		client: &http.Client{Timeout: sendTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	for _, h := range o.Config.Headers {
		v, err := h.Value.Resolve(o.Secrets)
		if err != nil {
			return nil, fmt.Errorf("tracing.headers.%s: %w", h.Name, err)
		}
		x.headers.Set(h.Name, v.Reveal())
	}
	return x, nil
}

// Observe adds an event. It does not block.
func (x *Exporter) Observe(ev retry.Event) {
	if ev.Err != nil {
		ev.Err = errors.New(x.redact(ev.Err.Error()))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.fold.Add(ev) {
		if len(x.spans) < maxBuffer {
			x.spans = append(x.spans, s)
		} else {
			x.dropped++
		}
	}
	if len(x.spans) >= maxBatch {
		select {
		case x.full <- struct{}{}:
		default:
		}
	}
}

// Run sends spans until the context ends. Then it makes one attempt to send the remaining ones.
func (x *Exporter) Run(ctx context.Context) error {
	runner := retry.Must(sends)
	t := time.NewTicker(pause)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-x.full:
		case <-ctx.Done():
			limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
			defer cancel()
			x.flush(limit, runner.WithAttempts(1))
			return nil
		}
		x.flush(ctx, runner)
	}
}

// flush sends all spans that wait, in batches. It drops a batch that can't be sent, and stops.
func (x *Exporter) flush(ctx context.Context, runner *retry.Runner) {
	for batch, dropped := x.take(); len(batch) > 0; batch, dropped = x.take() {
		body, err := json.Marshal(x.request(batch))
		if err == nil {
			err = runner.Do(ctx, func(ctx context.Context) error { return x.send(ctx, body) })
		}
		if err != nil {
			dropped += len(batch)
		}
		if dropped > 0 {
			x.log.Warn("spans were dropped", "spans", dropped, "error", err)
		}
		if err != nil {
			return // the next flush sends the rest
		}
	}
}

func (x *Exporter) take() (batch []Span, dropped int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := min(len(x.spans), maxBatch)
	batch = append(batch, x.spans[:n]...)
	x.spans = append(x.spans[:0], x.spans[n:]...)
	if n > 0 {
		dropped, x.dropped = x.dropped, 0
	}
	return batch, dropped
}

// request returns the body of an OTLP request with the spans.
func (x *Exporter) request(spans []Span) any {
	type object = map[string]any
	return object{"resourceSpans": []object{{
		"resource": object{"attributes": []Attr{text("service.name", "tideover"), text("service.version", x.version)}},
		"scopeSpans": []object{{
			"scope": object{"name": "github.com/tideover/tideover"},
			"spans": spans,
		}},
	}}}
}

// send makes one attempt to send a batch. An error that a retry would not change is permanent.
func (x *Exporter) send(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url, bytes.NewReader(body))
	if err != nil {
		return retry.Permanent(errors.New("tracing: the endpoint is not a URL"))
	}
	req.Header = x.headers.Clone()
	resp, err := x.client.Do(req)
	if err != nil {
		return fmt.Errorf("tracing: %s", x.redact(err.Error()))
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	switch code := resp.StatusCode; {
	case code < 300:
		return nil
	case code == http.StatusTooManyRequests || code >= 500:
		return fmt.Errorf("tracing: %s", resp.Status)
	default:
		return retry.Permanent(fmt.Errorf("tracing: %s", resp.Status))
	}
}
