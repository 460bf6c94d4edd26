package sim

import (
	"math"
	"math/bits"
)

// stream is a source of random numbers without state: the n-th number is computed
// from the stream's value and n. So a million clients with a stream for each purpose
// take no memory. A number depends only on its purpose and never on other draws, so
// that all policies get the same arrivals, service times and failures.
type stream uint64

// purpose says what random numbers are used for.
type purpose uint64

const (
	forArrivals purpose = iota + 1
	forClient
	forCall
	forThinking
	forBackoff
	forService
	forFailure
	forSlowness
	forBlackHole
	forRetryAfter
	forBreaker
	forHop
	forPriority
	forSpread
	forRejection
	forLoad
)

// newStream returns the stream of a run.
func newStream(seed uint64) stream { return stream(scramble(seed + golden)) }

// derive returns the stream of a part of the run, such as the n-th client, call
// or attempt.
func (s stream) derive(p purpose, n uint64) stream {
	return stream(scramble(uint64(s) ^ scramble(n*golden+uint64(p))))
}

// draw returns the n-th number for the purpose.
func (s stream) draw(p purpose, n uint64) uint64 { return uint64(s.derive(p, n)) }

// unit returns the n-th number for the purpose as a float in [0, 1).
func (s stream) unit(p purpose, n uint64) float64 { return unit(s.draw(p, n)) }

func unit(u uint64) float64 { return float64(u>>11) / (1 << 53) }

// below returns the n-th number for the purpose as an integer in [0, limit).
func (s stream) below(p purpose, n uint64, limit uint32) uint32 {
	hi, _ := bits.Mul64(s.draw(p, n), uint64(limit))
	return uint32(hi)
}

const golden = 0x9e3779b97f4a7c15

// scramble is the finaliser of splitmix64.
func scramble(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// exponential returns a sample with the mean 1.
func exponential(u uint64) float64 { return -math.Log(1 - unit(u)) }

// normal returns a sample of the standard normal distribution. It derives both
// uniform numbers that it needs from u.
func normal(u uint64) float64 {
	r := math.Sqrt(2 * exponential(u))
	return r * math.Cos(2*math.Pi*unit(scramble(u+golden)))
}

// lognormal returns a sample with the mean 1.
func lognormal(u uint64, sigma float64) float64 {
	return math.Exp(sigma*normal(u) - sigma*sigma/2)
}
