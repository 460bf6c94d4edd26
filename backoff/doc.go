// Package backoff computes how long to wait before a retry.
//
// A [Schedule] is plain data, and its [Schedule.Delay] is a pure function: the
// number of the retry, the previous delay and the random number are arguments.
// This package does not sleep, reads no clock and has no state, so any number
// of goroutines can use one schedule, and a stored schedule computes the same
// delays after a restart.
//
//	s := backoff.Schedule{
//		Kind:   backoff.Exponential,
//		Base:   100 * time.Millisecond,
//		Cap:    10 * time.Second,
//		Jitter: backoff.Full,
//	}
//	d := s.Delay(1, 0, rand.Uint64())
//
// [Schedule.Compile] returns a [Table], which computes the same delays faster.
//
// # Kinds
//
// The k-th retry (k counts from 1) waits, before jitter,
//
//   - [Fixed]: Base
//   - [Linear]: Base × k
//   - [Exponential]: Base × Factor^(k-1)
//   - [Decorrelated]: a random delay between Base and three times the previous
//     one
//
// never more than Cap.
//
// # Jitter
//
// Clients that fail together retry together unless their delays are random. A
// [Band] is the range around the delay from which the actual one is drawn,
// uniformly: ±20 % is 0.8..1.2, [Full] is 0..1.
//
// No delay exceeds the cap, even with jitter: the band is cut off at the cap.
// The drawn delay is not clamped to the cap, because then every client with a
// draw above the cap would wait for exactly the cap, and they would retry
// together again.
//
// # What it is not for
//
// This package does not decide whether to retry and does not wait. Use package
// retry for that.
package backoff
