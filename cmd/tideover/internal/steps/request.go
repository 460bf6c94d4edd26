package steps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/output"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// requestTimeout is the longest time of an attempt of a request if neither the policy nor
// the run sets one.
const requestTimeout = 5 * time.Minute

// withTimeout returns a context that ends after requestTimeout, or at the deadline of ctx if
// it has one.
func withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, limited := ctx.Deadline(); limited {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, requestTimeout)
}

// client sends the requests of all steps that have no provider. It follows no redirects:
// a redirect could send the headers of a step, which may contain secrets, to another host.
var client = &http.Client{
	Transport:     retryhttp.OneTry(http.DefaultTransport.(*http.Transport)), // the policy of the step counts the attempts
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// request makes one attempt of an HTTP step. Its error says whether the policy may retry,
// and has the delay that the server states.
func (r *Runner) request(ctx context.Context, s *Step, d Data, t *engine.Task) (result, error) {
	req, target, err := s.newRequest(ctx, d)
	if err != nil {
		return result{}, template.Classify(err)
	}
	if req.Header.Get("Idempotency-Key") == "" && req.Method != http.MethodGet && req.Method != http.MethodHead {
		req.Header.Set("Idempotency-Key", idempotencyKey(t))
	}
	ctx, cancel := withTimeout(ctx)
	defer cancel()
	resp, err := r.send(req.WithContext(ctx), s.Provider)
	if err != nil {
		return result{}, unanswered(ctx, req, err)
	}
	defer resp.Body.Close()
	what := r.describeRequest(s, target)
	body, ended, err := r.read(resp.Body, limitOf(s))
	res := result{Status: resp.StatusCode}
	res.Stdout, res.Truncated = beginning(body)
	res.Truncated = res.Truncated || !ended
	r.keepOutput(t, &output.Record{
		Request: what.text(),
		Status:  r.Redactor.String(resp.Proto + " " + resp.Status), Streams: []output.Stream{bodyStream(body, ended && err == nil)},
	})
	if s.Expected(resp.StatusCode) {
		if err != nil {
			return res, fmt.Errorf("read the response %s: %w", what, err)
		}
		return res, nil
	}
	if err := retryhttp.Check(resp); err != nil {
		return res, fmt.Errorf("%w %s%s", err, what, excerpt(res.Stdout))
	}
	if to := resp.Header.Get("Location"); to != "" {
		return res, retry.Permanent(fmt.Errorf("%s to %s %s: redirects are not followed", resp.Status, r.Redactor.String(to), what))
	}
	return res, retry.Permanent(fmt.Errorf("%s, which is not expected %s%s", resp.Status, what, excerpt(res.Stdout)))
}

// requestText describes a request in messages, with secrets masked.
type requestText struct{ method, target, provider string }

// maxTarget is how many bytes of a URL are shown.
const maxTarget = 300

// describeRequest returns the description of a request whose URL was rendered as target. It omits the user and
// the query of the URL, which may have secrets that are not part of the configuration.
func (r *Runner) describeRequest(s *Step, target string) requestText {
	target = userinfo.ReplaceAllString(r.Redactor.String(target), "$1")
	if i := strings.IndexAny(target, "?#"); i >= 0 {
		target = target[:i+1] + "…"
	}
	return requestText{s.Method, textfmt.TruncateMark(target, maxTarget, "…"), s.Provider}
}

// userinfo matches the beginning of a URL, up to its host.
var userinfo = lazyregexp.New(`^([A-Za-z]+://)[^/?#]*@`)

// text returns method and URL, such as "PUT https://example.com/a". For a provider it returns the path and the
// provider's name.
func (q requestText) text() string {
	return q.method + " " + q.target + q.of()
}

func (q requestText) of() string {
	if q.provider == "" {
		return ""
	}
	return " of provider " + q.provider
}

// String returns the text in parentheses, for errors. The URL is in quotes: errors that differ only in quoted text
// are in one group of dead letters.
func (q requestText) String() string {
	return fmt.Sprintf("(%s %q%s)", q.method, q.target, q.of())
}

// idempotencyKey returns the key of a request. It is the same for all attempts, replays and reruns,
// so that a server that supports the header does the work only once. After an undo of the step it is
// another one: the work must be done again.
func idempotencyKey(t *engine.Task) string {
	key := t.Origin + "/" + t.Step
	if t.Undos > 0 {
		key += "/" + strconv.Itoa(t.Undos+1)
	}
	return key
}

// read reads a body and keeps at most limit bytes of it, with secrets masked. It reads up
// to twice the limit, because a mask may be shorter than the secret. ended is false if there
// is more.
func (r *Runner) read(body io.Reader, limit int) (kept *output.Capture, ended bool, err error) {
	kept, some := &output.Capture{Limit: limit}, &io.LimitedReader{R: body, N: int64(2 * limit)}
	masked := r.Redactor.NewWriter(kept)
	_, err = io.Copy(masked, some)
	if some.N > 0 {
		_ = masked.Close() // can't fail: it writes to memory
		return kept, true, err
	}
	return kept, false, err // masked is not closed: the bytes that it still holds may begin a secret
}

// bodyStream returns a body as a stream: only its beginning if it was not read to its end.
func bodyStream(c *output.Capture, ended bool) output.Stream {
	if ended {
		return c.Stream("body")
	}
	head, _ := c.Beginning()
	return output.Stream{Name: "body", Head: head, Size: int64(len(head)), More: true}
}

// send sends the request by the named provider, or to the host of its URL if provider is "".
func (r *Runner) send(req *http.Request, provider string) (*http.Response, error) {
	if provider == "" {
		return client.Do(req)
	}
	return r.Provider(provider).RoundTrip(req)
}

// outcomeError is an error with its classification for the retry policy.
type outcomeError struct {
	error
	outcome retry.Outcome
}

func (e *outcomeError) RetryOutcome() retry.Outcome { return e.outcome }
func (e *outcomeError) Unwrap() error               { return e.error }

// unanswered classifies an error of a request that got no response. If the context has
// ended, the error has the cause of that.
func unanswered(ctx context.Context, req *http.Request, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return errors.Join(cause, err)
	}
	return &outcomeError{err, retryhttp.Classify(req, err)}
}

// excerpt returns ": " and the beginning of a body, to append to an error; "" for an empty
// body.
func excerpt(body string) string {
	body = strings.Join(strings.Fields(body), " ")
	if body == "" {
		return ""
	}
	return ": " + textfmt.TruncateMark(body, 300, "…")
}
