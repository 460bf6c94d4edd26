package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// order is the input of the demo's runs.
type order struct {
	Order    int    `json:"order"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Poison   bool   `json:"poison,omitempty"` // the step parse panics
}

var (
	customers = []string{"Ada", "Grace", "Edsger", "Barbara", "Tony", "Radia"}
	items     = []string{"lantern", "rope", "compass", "flare", "raft"}
)

func newOrder(n int) order {
	return order{Order: 4700 + n, Customer: customers[n%len(customers)], Item: items[n%len(items)], Poison: n%15 == 4}
}

// createWorkflows creates a workflow for each kind of failure: occasional errors, timeouts,
// permanent errors, panics, and conflicts.
func (d *Demo) createWorkflows() (err error) {
	add := func(name string, parts ...engine.Part) {
		w, e := engine.NewWorkflow(name, parts...)
		d.Workflows, err = append(d.Workflows, w), errors.Join(err, e)
	}
	add("order",
		engine.Step("charge", d.call("/flaky"), engine.Policy("exponential(1s..20s) jitter=0.5..1.5 attempts=6")),
		engine.Step("pack", d.call("/flaky"), engine.After("charge"), engine.Policy("fixed(2s) attempts=5")),
		engine.Step("label", d.call("/limited"), engine.After("charge"), engine.Policy("workflow-api attempts=8")),
		engine.Step("ship", d.ship, engine.After("pack", "label"), engine.Policy("workflow attempt-timeout=1m")))
	add("slow-report",
		engine.Step("gather", d.call("/slow"), engine.Policy("exponential(1s..10s) jitter=full attempts=6 attempt-timeout=1500ms")),
		engine.Step("render", d.render, engine.After("gather")))
	add("refund",
		engine.Step("verify", d.call("/refusing"), engine.Policy("exponential(500ms..10s) jitter=20% attempts=5")))
	add("import",
		engine.Step("parse", d.parse, engine.Policy("exponential(1s..8s) jitter=20% attempts=4")),
		engine.Step("store", d.call("/flaky"), engine.After("parse"), engine.Policy("decorrelated(500ms..10s) attempts=7")))
	add("contention", d.contention()...)
	return err
}

// call returns a step that sends one request to this path of the service.
func (d *Demo) call(path string) func(context.Context, order) (string, error) {
	return func(ctx context.Context, o order) (string, error) {
		url := fmt.Sprintf("http://%s%s?order=%d", d.listener.Addr(), path, o.Order)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
		if err != nil {
			return "", err
		}
		resp, err := d.client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		if err != nil {
			return "", err
		}
		if err := retryhttp.Check(resp); err != nil {
			return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(string(body)))
		}
		return string(body), nil
	}
}

// ship returns the results of the steps pack and label as one map.
func (d *Demo) ship(ctx context.Context, o order) (map[string]string, error) {
	packed, err := engine.Result[string](ctx, "pack")
	if err != nil {
		return nil, err
	}
	label, err := engine.Result[string](ctx, "label")
	return map[string]string{"to": o.Customer, "packed": packed, "label": label}, err
}

// render waits for a few seconds and reports progress, as a slow step would.
func (d *Demo) render(ctx context.Context, o order) (string, error) {
	for page := 1; page <= 5; page++ {
		if err := engine.Progress(ctx, fmt.Sprintf("page %d of 5", page)); err != nil {
			return "", err
		}
		if err := pause(ctx, 1200*time.Millisecond); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("report on order %d, 5 pages", o.Order), nil
}

// parse panics at every attempt of an order with Poison. For some other orders, the first attempts
// ask for a later attempt.
func (d *Demo) parse(ctx context.Context, o order) (int, error) {
	t, _ := engine.TaskOf(ctx)
	switch {
	case o.Poison:
		var lines []string
		return len(lines[o.Order]), nil // panics
	case o.Order%3 == 0 && t.Attempt == 1:
		return 0, engine.Snooze(5*time.Second, "the file is not complete yet")
	case o.Order%5 == 0 && t.Attempt <= 2:
		return 0, retry.After(errors.New("the file is locked by its writer"), 3*time.Second)
	}
	return o.Order % 100, nil
}
