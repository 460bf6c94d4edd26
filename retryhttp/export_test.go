package retryhttp

// SetStreamError fills in the shape that net/http fills in.
func SetStreamError(target any, code uint32) bool {
	s, ok := target.(*streamError)
	if ok {
		s.Code = code
	}
	return ok
}

// The bounds of what is kept of a request's body.
const (
	KeptInMemory = keptInMemory
	KeptInAll    = keptInAll
)

// OpeningOf tells what is known of how a stream begins.
func OpeningOf(b []byte) (known, failed bool) {
	o := openingOf(b)
	return o.known, o.problem != nil
}
