// Package chaos is an HTTP server that fails on purpose, for tests of clients. It speaks
// HTTP/1.1 and HTTP/2 on real sockets. A [Spec] says what it does with each request, from
// "503 twice, then 200" to a connection that is reset in the middle of an event stream.
//
//	func TestClientRetriesTwice(t *testing.T) {
//		server := chaos.StartTest(t, "503,503,200")
//		if _, err := myclient.New(server.URL()).Prices(t.Context()); err != nil {
//			t.Fatal(err)
//		}
//		if n := server.Stats().Requests; n != 3 {
//			t.Errorf("%d requests, want 3", n)
//		}
//	}
//
// # Specs
//
// A spec is a list of rules; the first rule that matches a request decides. A rule has a
// script of answers, random answers, delays, limits and outages:
//
//	503,503,200
//	/v1/messages: 429(retry-after=2)x2,200; *: fail=20% delay=50ms..200ms
//	seed=7; POST /v1: concurrent=4 over=429(retry-after=due) down 30s every 5m
//
// [Parse] reads the text form, which is the same as that of the command tideover chaos.
// docs/chaos-reference.md lists every fault with its spelling.
//
// # Faults
//
// Every fault is real: a reset is a TCP RST, a truncated body is a connection that
// ends too early, a refusal is a closed port. Random faults and delays depend only on the
// seed and the number of the request, so that the same requests get the same faults,
// whatever the order of goroutines.
//
// # Control endpoint
//
// Below /_chaos/ a server reports its statistics and accepts new rules, for programs
// in other processes. It accepts only requests from this machine. In the same process,
// use [Server.Stats], [Server.Set] and [Server.Reset].
//
// # What it is not for
//
// It is neither a load generator nor a proxy: there is no server behind it. To test a
// client without a network, use net/http/httptest.
package chaos
