package retryhttp

import (
	"errors"
	"net/http"

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
}

// WithRetry gives options to the runner behind the transport: its name,
// breaker, budget, limits, logger, observers, hooks. A classifier given here
// sees a [*StatusError] or what the transport below returned, and has the last
// word on what is sent again; a body that is gone stays gone.
func WithRetry(opts ...retry.Option) Option {
	return func(s *settings) error {
		s.retry = append(s.retry, opts...)
		return nil
	}
}

// WithIdempotent declares requests that may be sent twice although their method
// does not say so, such as a POST that only searches. The function is called
// for other methods than GET, HEAD, OPTIONS, TRACE, PUT and DELETE, and must
// not change the request.
func WithIdempotent(declared func(*http.Request) bool) Option {
	return func(s *settings) error {
		if declared == nil {
			return errors.New("WithIdempotent: nil")
		}
		s.idempotent = declared
		return nil
	}
}

// WithAnswered also retries a request of any method that was answered with a
// transient status, such as a POST answered with 500. That is how the clients
// of model providers behave: they answer with an error instead of doing the
// work. A request that was sent and not answered is still not sent again.
func WithAnswered() Option {
	return func(s *settings) error {
		s.answered = true
		return nil
	}
}

// WithConflict makes 409 transient. OpenAI and Anthropic answer with it when a
// lock could not be had in time.
func WithConflict() Option {
	return func(s *settings) error {
		s.conflict = true
		return nil
	}
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
