// Package backoff computes how long to wait before a retry.
//
// A [Schedule] is plain data, and its [Schedule.Delay] is a pure function: the
// number of the retry, the delay before it and the randomness are arguments.
// Nothing here sleeps, reads a clock or keeps state, so one schedule serves any
// number of goroutines, and a stored one computes the same delays after a
// restart as before it.
//
//	s := backoff.Schedule{
//		Kind:   backoff.Exponential,
//		Base:   100 * time.Millisecond,
//		Cap:    10 * time.Second,
//		Jitter: backoff.Full,
//	}
//	d := s.Delay(1, 0, rand.Uint64())
//
// # Kinds
//
// The k-th retry (k counts from 1) waits, before jitter,
//
//   - [Fixed]: Base
//   - [Linear]: Base × k
//   - [Exponential]: Base × Factor^(k-1)
//   - [Decorrelated]: a random delay between Base and three times the previous one
//
// never more than Cap.
//
// # Jitter
//
// Clients that fail together retry together unless chance spreads them. A
// [Band] is the range around the delay from which the actual one is drawn,
// uniformly: ±20 % is 0.8..1.2, [Full] is 0..1.
//
// The cap is a promise that jitter keeps: the band is cut off at the cap. The
// sample is not clamped to it, because that would put every client whose draw
// was above the cap on exactly the cap, back in step.
//
// # What it is not for
//
// This package does not decide whether to retry and does not wait. That is
// package retry.
package backoff
