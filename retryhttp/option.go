package retryhttp

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tideover/tideover/internal/httpheader"
	"github.com/tideover/tideover/retry"
)

// Option sets a part of a transport that can't be written in a policy text.
type Option func(*settings) error

// settings holds the values that options set.
type settings struct {
	retry      []retry.Option
	idempotent func(*http.Request) bool
	answered   bool
	conflict   bool
	keys       bool
	layer      string   // "" sends no attempt headers
	deadlines  []string // headers that tell the server how much time is left
	streams    Streams
	decoders   map[string]Decoder // decoders of response bodies, by name of the encoding
	router     Router
}

// given returns an option that calls set. If present is false, the option returns an error
// that says that the value of the option called name is nil.
func given(present bool, name string, set func(*settings)) Option {
	return func(s *settings) error {
		if !present {
			return errors.New(name + ": nil")
		}
		set(s)
		return nil
	}
}

// WithRetry passes options to the runner behind the transport: name,
// breaker, budget, limits, logger, observers, hooks. A classifier set here
// gets a [*StatusError] or the error of the transport below, and finally decides what
// is sent again. It can't repeat a request whose body can't be sent again.
func WithRetry(opts ...retry.Option) Option {
	return given(true, "WithRetry", func(s *settings) { s.retry = append(s.retry, opts...) })
}

// WithIdempotent declares requests that may be processed twice although their method
// does not show it, such as a POST that only searches. The transport calls the function
// for methods other than GET, HEAD, OPTIONS, TRACE, PUT and DELETE. The function must
// not change the request.
func WithIdempotent(declared func(*http.Request) bool) Option {
	return given(declared != nil, "WithIdempotent", func(s *settings) { s.idempotent = declared })
}

// WithAnswered also retries a request of any method that was answered with a
// transient status, such as a POST answered with 500. The SDKs of model providers do
// the same, because these providers answer with an error instead of doing the
// work. A request that was sent and not answered is still not sent again.
func WithAnswered() Option {
	return given(true, "WithAnswered", func(s *settings) { s.answered = true })
}

// WithConflict makes status 409 transient. OpenAI and Anthropic answer with it if they
// could not get a lock in time.
func WithConflict() Option {
	return given(true, "WithConflict", func(s *settings) { s.conflict = true })
}

// WithIdempotencyKeys adds an Idempotency-Key to every request that must not be
// processed twice and has none: one for each request, the same for all its attempts.
// The transport then retries such a request after any transient failure, so use it only
// with servers that honour the header.
func WithIdempotencyKeys() Option {
	return given(true, "WithIdempotencyKeys", func(s *settings) { s.keys = true })
}

// WithAttemptHeaders tells the server which attempt of a request it sees, in
// X-Tideover-Attempt from 1 on, and through which layers the request came, in
// X-Tideover-Layer: the layers before this one, then the name passed here.
func WithAttemptHeaders(layer string) Option {
	return func(s *settings) error {
		if !httpheader.IsToken(layer) {
			return fmt.Errorf("WithAttemptHeaders: %q is not a token", layer)
		}
		s.layer = layer
		return nil
	}
}

// WithDeadlineHeaders tells the server how much time each attempt has left: the
// shorter of the policy's attempt-timeout and the time until the context's
// deadline. Each name is one of Grpc-Timeout, Connect-Timeout-Ms,
// X-Envoy-Upstream-Rq-Timeout-Ms, X-Stainless-Timeout and X-Request-Timeout-Ms.
// Without a limit the transport sends no such header.
//
// If a request already has one of these headers, the transport reduces its value
// and adds no other.
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

// WithStreams makes the transport check how event streams begin, and limit the silence
// within all answers. Without it only the status of an answer counts, and its body may
// take as long as the caller's context lasts.
func WithStreams(st Streams) Option {
	return func(s *settings) error {
		if st.Hold < 0 || st.Idle < 0 || st.Sized < 0 {
			return fmt.Errorf("WithStreams: hold %v, idle %v or sized %v is negative", st.Hold, st.Idle, st.Sized)
		}
		s.streams = st
		return nil
	}
}

// WithRouter sets the router that picks the target of each attempt and decides what
// follows a failure. With a router, the policy's attempt-timeout starts when Route has
// returned, and does not include the time in which the transport waits for the source of
// the request's body. A router replaces [retry.WithReview].
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
