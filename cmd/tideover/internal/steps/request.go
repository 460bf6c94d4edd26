package steps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// requestTimeout ends a request whose policy says nothing of it.
const requestTimeout = 5 * time.Minute

// client makes the requests of all steps. It follows no redirects: they would take
// the headers of a step, which may hold secrets, to wherever an answer says.
var client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// request makes a request once. Whether it is made again is the policy's
// business, and what the other side says of it goes there.
func (r *Runner) request(ctx context.Context, s *Step, d Data, t *engine.Task) (result, error) {
	req, err := s.Request(ctx, d)
	if err != nil {
		return result{}, template.Classify(err)
	}
	if req.Header.Get("Idempotency-Key") == "" && req.Method != http.MethodGet && req.Method != http.MethodHead {
		// The same for all attempts, also of replays and reruns: a server that knows
		// the header does the work once.
		req.Header.Set("Idempotency-Key", t.Origin+"/"+t.Step)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := r.send(req.WithContext(ctx), s.Provider)
	if err != nil {
		return result{}, unanswered(ctx, req, err)
	}
	defer resp.Body.Close()
	body, err := r.read(resp.Body, limitOf(s))
	res := result{Status: resp.StatusCode, Stdout: body.text(), Truncated: body.over}
	if s.Expected(resp.StatusCode) {
		if err != nil {
			return res, fmt.Errorf("read the response: %w", err)
		}
		return res, nil
	}
	if err := retryhttp.Check(resp); err != nil {
		return res, fmt.Errorf("%w%s", err, excerpt(res.Stdout))
	}
	if to := resp.Header.Get("Location"); to != "" {
		return res, retry.Permanent(fmt.Errorf("%s to %s: redirects are not followed", resp.Status, r.Redactor.String(to)))
	}
	return res, retry.Permanent(fmt.Errorf("%s, which is not expected%s", resp.Status, excerpt(res.Stdout)))
}

// read reads so much of a body that what is kept of it is full, but for masks that
// are shorter than what they hide.
func (r *Runner) read(body io.Reader, limit int) (*capped, error) {
	kept, some := &capped{limit: limit}, &io.LimitedReader{R: body, N: int64(2 * limit)}
	masked := r.Redactor.NewWriter(kept)
	_, err := io.Copy(masked, some)
	if some.N > 0 {
		_ = masked.Close() // to memory
	} else {
		kept.over = true // and what was held back may be the beginning of a secret
	}
	return kept, err
}

// send sends the request where it goes: to the provider, or where its URL says.
func (r *Runner) send(req *http.Request, provider string) (*http.Response, error) {
	if provider == "" {
		return client.Do(req)
	}
	return r.Provider(provider).RoundTrip(req)
}

// outcomeError is an error with what it means for the next attempt.
type outcomeError struct {
	error
	outcome retry.Outcome
}

func (e *outcomeError) RetryOutcome() retry.Outcome { return e.outcome }
func (e *outcomeError) Unwrap() error               { return e.error }

// unanswered says what an error without an answer means.
func unanswered(ctx context.Context, req *http.Request, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return errors.Join(cause, err)
	}
	return &outcomeError{err, retryhttp.Classify(req, err)}
}

// excerpt returns the beginning of a body for an error.
func excerpt(body string) string {
	body = strings.Join(strings.Fields(body), " ")
	if body == "" {
		return ""
	}
	return ": " + textfmt.TruncateMark(body, 300, "…")
}
