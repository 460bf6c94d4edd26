package nostrtest

// The defaults of what is kept.
const (
	defaultEvents   = 100_000
	defaultReceived = 10_000
)

// Option changes a relay that is being made.
type Option func(*options)

type options struct {
	events, received int
	faults           Faults
}

func newOptions(list []Option) options {
	o := options{events: defaultEvents, received: defaultReceived}
	for _, set := range list {
		set(&o)
	}
	return o
}

// KeepEvents bounds the events that are stored; the oldest arrivals go first. The
// default is 100 000, the least is 1.
func KeepEvents(n int) Option {
	return func(o *options) { o.events = max(n, 1) }
}

// KeepReceived bounds the messages that [Relay.Received] returns; the oldest go
// first. The default is 10 000, the least is 1.
func KeepReceived(n int) Option {
	return func(o *options) { o.received = max(n, 1) }
}

// WithFaults makes a relay that has the faults from the start.
func WithFaults(f Faults) Option {
	return func(o *options) { o.faults = f }
}
