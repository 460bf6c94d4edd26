package steps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// request makes a request once. Whether it is made again is the policy's
// business, and what the other side says of it goes there.
func (r *Runner) request(ctx context.Context, s *config.Step, d config.Data, t *engine.Task) (result, error) {
	req, err := s.Request(ctx, d)
	if err != nil {
		return result{}, retry.Permanent(err)
	}
	if req.Header.Get("Idempotency-Key") == "" && req.Method != http.MethodGet && req.Method != http.MethodHead {
		// The same for all attempts: a server that knows the header does the work once.
		req.Header.Set("Idempotency-Key", t.Run+"/"+t.Step)
	}
	resp, err := cmp.Or(r.Client, http.DefaultClient).Do(req)
	if err != nil {
		return result{}, classify(ctx, err)
	}
	defer resp.Body.Close()
	body := &capped{limit: int(cmp.Or(s.OutputLimit, maxResult))}
	_, err = io.Copy(body, resp.Body)
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
	return res, retry.Permanent(fmt.Errorf("%s, which is not expected%s", resp.Status, excerpt(res.Stdout)))
}

// classify says what an error without an answer means.
func classify(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return errors.Join(cause, err)
	}
	return err
}

// excerpt returns the beginning of a body for an error.
func excerpt(body string) string {
	body = strings.Join(strings.Fields(body), " ")
	if body == "" {
		return ""
	}
	if len(body) > 300 {
		body = cut(body, 300) + "…"
	}
	return ": " + body
}
