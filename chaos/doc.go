// Package chaos is an upstream that fails on purpose, on real sockets, for tests
// and for the demo: it speaks HTTP/1.1 and HTTP/2, and does to each request what
// a [Spec] says, from "503 twice, then 200" to a connection that is reset in the
// middle of an event stream.
//
//	server, err := chaos.New(chaos.MustParse("/v1/messages: 429(retry-after=2)x2,200; *: fail=20%"))
//	err = server.Start("")          // a free port on loopback
//	defer server.Close()
//	... server.URL() ...
//	... server.Stats().Requests ... // exactly two retries
//
// Every fault is a real one: a reset is a RST, a truncated body a connection that
// ends too early, a refusal a port that nobody listens on. Whatever is drawn is
// drawn from the seed and the number of the request, so that the same requests
// meet the same faults.
//
// docs/chaos.md has every fault with its spelling. It is not a load generator and
// not a proxy: nothing is behind it.
package chaos
