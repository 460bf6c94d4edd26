package breaker

import "errors"

// Option adds to a breaker what is not plain data.
type Option func(*options)

type options struct {
	name      string
	observers []func(Event)
	random    func() uint64
}

// WithName gives the breaker a name for its errors and events. Without one they
// carry the empty string.
func WithName(name string) Option { return func(o *options) { o.name = name } }

// WithObserver calls f after every change of state. Several observers are
// called one after the other. See [Event] for what they may rely on.
func WithObserver(f func(Event)) Option {
	return func(o *options) { o.observers = append(o.observers, f) }
}

// WithRand sets the source of the random numbers for the open time's jitter.
// It is called with the breaker's lock held: it need not be safe for use by
// several goroutines, and must not call the breaker. Without this option the
// source is that of package math/rand/v2.
func WithRand(f func() uint64) Option { return func(o *options) { o.random = f } }

func (o *options) validate() error {
	var p problems
	for _, f := range o.observers {
		if f == nil {
			p.add("observer", "is nil")
		}
	}
	if o.random == nil {
		p.add("rand", "is nil")
	}
	return errors.Join(p...)
}
