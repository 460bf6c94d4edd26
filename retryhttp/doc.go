// Package retryhttp retries HTTP requests. A [Transport] is an
// [http.RoundTripper] that wraps any other.
//
//	client := &http.Client{Transport: retryhttp.Must("http attempt-timeout=10s", nil)}
//
// Under a policy without timeouts, a first attempt that succeeds costs nothing:
// the transport passes the caller's request on unchanged.
//
// # What is sent again
//
// GET, HEAD, OPTIONS, TRACE, PUT and DELETE after any transient failure. A
// POST, a PATCH or any other method only if the server has not processed it:
//
//   - it was not sent, because there was no connection
//   - HTTP/2 says so, with REFUSED_STREAM or GOAWAY
//   - the status says so: 421, 425, 429, and 503 with Retry-After
//
// or if processing it twice does no harm:
//
//   - it has an Idempotency-Key, of its own or by [WithIdempotencyKeys]
//   - [WithIdempotent] declares it
//   - the server answered with a transient status, and [WithAnswered] is set
//
// The type of the error shows whether there was a connection. For an attempt with a
// timeout, and for every attempt after the first, httptrace shows it too.
//
// One request on the wire is one attempt: see [OneTry].
//
// # What failures mean
//
//	408 500 502 503 504 529    transient
//	429                        transient, and the wait starts from throttle-base; permanent
//	                           if the body's code says that quota or credit is used up
//	421 425                    one retry; 421 on a new connection if it was HTTP/1
//	409                        an answer; transient with WithConflict
//	501 505 511, other 5xx     permanent
//	other 4xx                  an answer like 200: a success in events, and no log line
//	x-should-retry             overrides all of the above, both ways
//	unknown host               permanent; other failures of DNS are transient
//	certificates, bad URLs and headers    permanent
//	other errors               transient
//
// The transport distinguishes errors by type and not by their text, except for one GOAWAY
// whose error in net/http has no type. An error that implements [retry.Classified] states its own outcome.
//
// # How long it waits
//
// The wait is that of the policy, and at least as long as the server asks; see
// [ServerDelay]. A google.rpc.RetryInfo in the body counts too. If the server
// asks for more than the policy's server-wait, or for more than the context's
// deadline allows, the transport gives up at once.
//
// # When it gives up
//
// If the last attempt got a response, the transport returns that response without an
// error, with a readable body; [GaveUp] has the reason. If it got an error, the
// transport returns a [*retry.Error]; if the caller canceled, the error of the context.
// In events and in that error, a response that counts as a failure is a [*StatusError].
//
// # Bodies
//
// The transport repeats a request that has GetBody, which [http.NewRequest] sets for
// bytes and strings, with GetBody. It rewinds a body that can seek. It stores a copy of
// any other body while it is sent: 256 KiB in memory, the rest in an unlinked file,
// 16 MiB in all. A longer body is sent once; a failure is then final and matches
// [ErrBody], in events and logs too. The transport reads no body before the
// transport below does, and an unknown length stays unknown. The caller's request is
// not changed, and its body is always closed.
//
// Before another attempt, the transport reads up to 64 KiB of the response, for at most
// 50 ms, and closes it, so that the connection is free for others during the wait.
//
// # Timeouts
//
// attempt-timeout and total-timeout apply until the headers of the answer arrive. The
// caller can read the body for as long as its own context lasts, or until the body
// is silent for longer than [Streams] allows. [WithDeadlineHeaders] tells the
// server how much time is left. With a [Router], attempt-timeout does not include the
// time in which the transport waits for the source of the request's body.
//
// # Streams
//
// With [WithStreams], the transport holds an event stream back until its first content.
// A stream that begins with an error event counts as that error. A stream that breaks
// off before its first content is requested again if the request may be processed
// twice. Otherwise the caller gets the part that arrived, and then the error, because
// the server may have done the work. A stream that is silent for Streams.Idle before
// its first content is treated alike, except after a GET. After its first content a
// stream is never requested again, because the caller has seen a part of it.
//
// # Hedging
//
// If the policy has a hedge, a slow first attempt gets a second one beside it. This
// requires a request that may be processed twice and a body that can be read twice at
// once. The first answer counts; the other attempt is canceled and its answer closed.
//
// # Several layers
//
// Retries of several layers multiply. [WithAttemptHeaders] tells the server which
// attempt it sees. If a program sends a request on behalf of one that is itself a
// retry, the request gets half the attempts; [Deadline] records this in the context, or
// call [WithPriorRetries]. All redirects that a client follows share the attempts and
// the time of one request.
//
// # Destinations
//
// A transport has one breaker, one budget and one set of limits for all requests;
// [PerHost] has a transport for each host. A [Router] picks the target of each
// attempt, among several keys or providers, and decides what follows a failure.
// [Transport.WithAttempts] and [Transport.WithHedge] derive transports that share
// everything else.
//
// # For servers
//
// [Deadline] ends the work for clients that no longer wait, and [Limiter] rejects
// excess requests with a Retry-After that is computed from the load.
//
// # What it does not do
//
// The package does not support gRPC. It never checks whether a server honours an
// Idempotency-Key. A POST that was sent and not answered is repeated only with such a
// key, [WithIdempotencyKeys] or [WithIdempotent].
//
// A failure that must not be repeated ends the call with [retry.StopPermanent]. A
// breaker counts it like any other failure of the server.
package retryhttp
