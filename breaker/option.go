package breaker

import (
	"errors"

	"github.com/tideover/tideover/internal/validate"
)

// Option sets a property of a breaker that is not plain data.
type Option func(*options)

type options struct {
	name      string
	observers []func(Event)
	random    func() uint64
}

// WithName sets the name that the breaker's errors and events contain. The
// default is the empty string.
func WithName(name string) Option { return func(o *options) { o.name = name } }

// WithObserver calls f after every change of state. Several observers are
// called one after the other. See [Event] for the guarantees.
func WithObserver(f func(Event)) Option {
	return func(o *options) { o.observers = append(o.observers, f) }
}

// WithRand sets the source of the random numbers for the jitter of the open
// time. The breaker calls it with its lock held: it need not be safe for
// concurrent use, and must not call the breaker. Without this option the
// breaker uses package math/rand/v2.
func WithRand(f func() uint64) Option { return func(o *options) { o.random = f } }

func (o *options) validate() error {
	var p validate.Problems
	for _, f := range o.observers {
		p.Check(f != nil, "observer: is nil")
	}
	p.Check(o.random != nil, "rand: is nil")
	return errors.Join(p...)
}
