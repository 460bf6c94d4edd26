package nostrtest

// The default limits of stored events and messages.
const (
	defaultEvents   = 100_000
	defaultReceived = 10_000
)

// Option configures a new relay.
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

// KeepEvents limits the stored events; the oldest are dropped first. The
// default is 100 000, the least is 1.
func KeepEvents(n int) Option { return func(o *options) { o.events = max(n, 1) } }

// KeepReceived limits the messages that [Relay.Received] returns; the oldest
// are dropped first. The default is 10 000, the least is 1.
func KeepReceived(n int) Option { return func(o *options) { o.received = max(n, 1) } }

// WithFaults sets the faults of the relay from the start.
func WithFaults(f Faults) Option { return func(o *options) { o.faults = f } }
