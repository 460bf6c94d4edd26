// Package retryhttp retries HTTP requests: a [Transport] is an
// [http.RoundTripper] around any other.
//
//	client := &http.Client{Transport: retryhttp.Must("http attempt-timeout=10s", nil)}
//
// Under a policy without timeouts, a first attempt that succeeds costs nothing:
// the request goes out as it came.
//
// # What is sent again
//
// GET, HEAD, OPTIONS, TRACE, PUT and DELETE after any failure that may pass. A
// POST, a PATCH or any other method only if the server has not processed it:
//
//   - it was not sent, because no connection could be had
//   - HTTP/2 says so (REFUSED_STREAM; net/http itself deals with GOAWAY)
//   - the status says so: 421, 425, 429, and 503 with Retry-After
//
// or if processing it twice does no harm:
//
//   - it has an Idempotency-Key, of its own or by [WithIdempotencyKeys]
//   - [WithIdempotent] declares it
//   - it was answered with a failure, and [WithAnswered] says what that means
//
// The type of the error says whether there was a connection; for an attempt with a
// timeout, and for every attempt after the first, httptrace says so too.
//
// # What failures mean
//
//	408 500 502 503 504 529    may pass
//	429                        may pass, and the wait starts from throttle-base; final if
//	                           the body's code says that quota or credit is gone
//	421 425                    one retry, the former on a new connection if it was HTTP/1
//	409                        an answer; may pass with WithConflict
//	501 505 511, other 5xx     final
//	other 4xx                  an answer like 200: a success in events, and no log line
//	x-should-retry             overrides all of the above, both ways
//	unknown host               final; other failures of DNS may pass
//	certificates, bad URLs and headers    final
//	other errors               may pass
//
// Errors are distinguished by type and never by their text. One that implements
// [retry.Classified] speaks for itself.
//
// # How long it waits
//
// As the policy says, and at least as long as the server asks; see
// [ServerDelay]. The body's google.rpc.RetryInfo counts too. When the server
// asks for more than the policy's server-wait, or for more than the context's
// deadline leaves, the transport does not wait at all.
//
// # When it gives up
//
// On a response, it returns that response, readable and without an error;
// [GaveUp] has the reason. On an error, and when the caller's context has
// ended, it returns a [*retry.Error]. In events and in that error, a response
// is a [*StatusError].
//
// # Bodies
//
// A request with GetBody, which [http.NewRequest] sets for bytes and strings,
// is repeated with it. A body that can seek goes back to where it started. Any
// other is kept while it is sent: 256 KiB in memory, then in a nameless file,
// 16 MiB in all. A longer one is sent once; its failure is final and says
// [ErrBody], in the event and in the log too. Nothing is read before the
// transport below asks for it, and a length that is unknown stays unknown. The
// caller's request is not changed, and its body is always closed.
//
// A response that is not the last is read (64 KiB or 50 ms of it) and closed, so
// that its connection is used again, and not held during the wait.
//
// # Timeouts
//
// attempt-timeout and total-timeout end with the headers of the answer. The
// body can be read for as long as the caller's own context lasts, or until it
// goes silent for longer than [Streams] allows. [WithDeadlineHeaders] tells the
// server how much time is left. With a [Router], the time in which the transport waits
// for the source of the request's body is no part of attempt-timeout.
//
// # Streams
//
// With [WithStreams], an event stream is held back until its first content, so
// that one which begins with an error is that error. One that breaks off before its
// first content is requested again if the request may be processed twice. Otherwise
// the caller gets the stream as far as it came, and then the error: the server may
// have done the work. One that stalls, silent for Streams.Idle, is treated in the same
// way unless it is that of a GET. After its first content a stream belongs to the caller: an
// answer of which the caller has seen a part is never repeated.
//
// # Hedging
//
// Under a policy with hedge, a request that may be sent twice, and whose body can
// be read twice at once, has a second attempt beside a slow first one. The first
// answer counts; the other attempt is canceled and its answer closed.
//
// # Several layers
//
// Layers that all retry multiply. [WithAttemptHeaders] tells the server which
// attempt it sees; a request sent on behalf of one that is itself a retry, which
// [Deadline] notes and [WithPriorRetries] says, gets half the attempts. The
// redirects that a client follows share the attempts and the time of one request.
//
// # Destinations
//
// One transport has one breaker, budget and limit for everything it sends;
// [PerHost] keeps a transport for each host. A [Router] picks the target of each
// attempt, among several keys or providers, and decides what follows a failure.
// [Transport.WithAttempts] and [Transport.WithHedge] derive transports that share
// everything else.
//
// # For servers
//
// [Deadline] ends the work for clients who no longer wait, and [Limiter] refuses
// what is too much with a Retry-After that is worth waiting for.
//
// # What it does not do
//
// No gRPC: that comes with a package of its own. It never asks whether a server
// honours an Idempotency-Key. After a POST that was sent and not answered, the
// only options are such a key, [WithIdempotencyKeys] and [WithIdempotent].
//
// A failure that may not be repeated ends with reason [retry.StopPermanent] and
// counts against a breaker like any other failure of the server.
package retryhttp
