package demo

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/chaos"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/retry"
)

// The faults and the policy of the two providers. The model throttles, fails, and is down for a
// quarter of the time; the backup is its fallback.
const (
	modelFails  = `*: delay=20ms..200ms 429(retry-after-ms=800)=5% 503=8% reset=1% down 10s every 40s from 3s as 503`
	backupFails = `*: delay=100ms..400ms 503=2%`
	modelPolicy = "exponential(200ms..2s) jitter=full attempts=5 attempt-timeout=5s total-timeout=20s"
)

// callers is the number of concurrent clients of the gateway. Each waits from shortPause to three times
// as long between two requests: gateway.keep-requests in files/base.yaml is large enough for the requests
// of an hour, so that a request that a visitor has found does not soon disappear.
const (
	callers    = 4
	shortPause = 2 * time.Second
)

// createProviders starts an unreliable upstream for each provider and creates the providers.
func (d *Demo) createProviders() error {
	for _, m := range []struct {
		name, fails string
		keys        int
		fallback    []string
	}{
		{"model", modelFails, 2, []string{"model-backup"}},
		{"model-backup", backupFails, 1, nil},
	} {
		spec, err := chaos.Parse(m.fails)
		if err != nil {
			return err
		}
		up, err := chaos.New(spec)
		if err != nil {
			return err
		}
		if err := up.Start(""); err != nil {
			return err
		}
		d.upstreams = append(d.upstreams, up)
		base, err := url.Parse(up.URL())
		if err != nil {
			return err
		}
		s := gateway.Spec{Name: m.name, Preset: gateway.OpenAI, BaseURL: base, Fallback: m.fallback, Concurrent: 8}
		for i := range m.keys {
			s.Keys = append(s.Keys, gateway.Key{Name: fmt.Sprintf("key-%d", i+1), Value: gateway.NewSecret(fmt.Sprintf("demo-%s-%d", m.name, i+1))})
		}
		if s.Policy, err = retry.Parse(modelPolicy); err != nil {
			return err
		}
		d.Providers = append(d.Providers, s.Fill())
	}
	return nil
}

// callModel sends requests to the model through the gateway, until the context ends.
func (d *Demo) callModel(ctx context.Context, address string) {
	priorities := []string{"low", "normal", "normal", "high"}
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				d.question(ctx, address+"p/model/v1/chat/completions", priorities[i%len(priorities)])
				_ = pause(ctx, shortPause+rand.N(2*shortPause))
			}
		})
	}
	all.Wait()
}

// question sends one request and ignores the response: the web page of the server shows the
// outcome.
func (d *Demo) question(ctx context.Context, url, priority string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	body := strings.NewReader(`{"model":"demo","messages":[{"role":"user","content":"is the tide in?"}]}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Tideover-Priority", priority)
	resp, err := d.client.Do(req)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}
