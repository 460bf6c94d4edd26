package retryhttp

// SetStreamError sets the code in a target of errors.As, as net/http does.
func SetStreamError(target any, code uint32) bool {
	s, ok := target.(*streamError)
	if ok {
		s.Code = code
	}
	return ok
}

// The limits of what is stored of a request's body.
const (
	KeptInMemory = keptInMemory
	KeptInAll    = keptInAll
)

// OpeningOf returns whether the beginning of a stream shows content or an error, and
// whether it is an error.
func OpeningOf(b []byte) (known, failed bool) {
	o := openingOf(b)
	return o.known, o.problem != nil
}
