package retryhttp

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tideover/tideover/internal/httpheader"
	"github.com/tideover/tideover/retry"
)

// Option adds to a transport what can't be written in a policy.
type Option func(*settings) error

// settings is what options set.
type settings struct {
	retry      []retry.Option
	idempotent func(*http.Request) bool
	answered   bool
	conflict   bool
	keys       bool
	layer      string   // "" sends no attempt headers
	deadlines  []string // headers that say how much time is left
	streams    Streams
	decoders   map[string]Decoder // of bodies, by the name of their encoding
	router     Router
}

// given returns an option that refuses a value which is missing.
func given(present bool, name string, set func(*settings)) Option {
	return func(s *settings) error {
		if !present {
			return errors.New(name + ": nil")
		}
		set(s)
		return nil
	}
}

// WithRetry gives options to the runner behind the transport: its name,
// breaker, budget, limits, logger, observers, hooks. A classifier given here
// sees a [*StatusError] or what the transport below returned, and has the last
// word on what is sent again; a body that is gone stays gone.
func WithRetry(opts ...retry.Option) Option {
	return given(true, "WithRetry", func(s *settings) { s.retry = append(s.retry, opts...) })
}

// WithIdempotent declares requests that may be sent twice although their method
// does not say so, such as a POST that only searches. The function is called
// for other methods than GET, HEAD, OPTIONS, TRACE, PUT and DELETE, and must
// not change the request.
func WithIdempotent(declared func(*http.Request) bool) Option {
	return given(declared != nil, "WithIdempotent", func(s *settings) { s.idempotent = declared })
}

// WithAnswered also retries a request of any method that was answered with a
// transient status, such as a POST answered with 500. That is how the clients
// of model providers behave: they answer with an error instead of doing the
// work. A request that was sent and not answered is still not sent again.
func WithAnswered() Option {
	return given(true, "WithAnswered", func(s *settings) { s.answered = true })
}

// WithConflict makes 409 transient. OpenAI and Anthropic answer with it when a
// lock could not be had in time.
func WithConflict() Option {
	return given(true, "WithConflict", func(s *settings) { s.conflict = true })
}

// WithIdempotencyKeys gives an Idempotency-Key to every request that may not be
// sent twice and has none: one for each request, the same on all its attempts.
// Such a request is then retried after any failure that may pass, so use it only
// with servers that honour the header.
func WithIdempotencyKeys() Option {
	return given(true, "WithIdempotencyKeys", func(s *settings) { s.keys = true })
}

// WithAttemptHeaders tells the server which attempt of a request it sees, in
// X-Tideover-Attempt from 1 on, and which layers it came through, in
// X-Tideover-Layer: those before us, then the name given here.
func WithAttemptHeaders(layer string) Option {
	return func(s *settings) error {
		if !httpheader.IsToken(layer) {
			return fmt.Errorf("WithAttemptHeaders: %q is not a token", layer)
		}
		s.layer = layer
		return nil
	}
}

// WithDeadlineHeaders tells the server how much time is left, anew for each
// attempt: the least of the policy's attempt-timeout and what the context's
// deadline leaves. Each name is one of Grpc-Timeout, Connect-Timeout-Ms,
// X-Envoy-Upstream-Rq-Timeout-Ms, X-Stainless-Timeout and X-Request-Timeout-Ms.
// Without a limit there is no header.
//
// A request that states its deadline in one of these headers keeps that form: the value
// is reduced, and no other header is added.
func WithDeadlineHeaders(names ...string) Option {
	return func(s *settings) error {
		for _, n := range names {
			name := http.CanonicalHeaderKey(n)
			if _, ok := formatBudget(name, time.Second); !ok {
				return fmt.Errorf("WithDeadlineHeaders: %q is not a header that says how much time is left", n)
			}
			s.deadlines = append(s.deadlines, name)
		}
		return nil
	}
}

// WithStreams looks at how event streams begin, and at the silences in all
// answers. Without it only the status of an answer counts, and its body may take
// as long as the caller's context lasts.
func WithStreams(st Streams) Option {
	return func(s *settings) error {
		if st.Hold < 0 || st.Idle < 0 || st.Sized < 0 {
			return fmt.Errorf("WithStreams: hold %v, idle %v or sized %v is negative", st.Hold, st.Idle, st.Sized)
		}
		s.streams = st
		return nil
	}
}

// WithRouter lets the router pick the target of each attempt, and decide what follows a
// failure. With it, the policy's attempt-timeout starts when the router has routed the
// attempt, and the time in which the request's body is awaited from its source does not
// count. A router takes the place of [retry.WithReview].
func WithRouter(r Router) Option {
	return given(r != nil, "WithRouter", func(s *settings) { s.router = r })
}

func apply(opts []Option) (s settings, err error) {
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("option: nil"))
			continue
		}
		errs = append(errs, o(&s))
	}
	return s, errors.Join(errs...)
}
