package bench_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	avast "github.com/avast/retry-go/v5"

	"github.com/tideover/tideover/backoff"
)

// BenchmarkDelay computes the next delay, exponential with jitter: eight steps,
// then from the start.
func BenchmarkDelay(b *testing.B) { compare(b, delayEntries()) }

// BenchmarkDelayParallel is BenchmarkDelay from all processors.
func BenchmarkDelayParallel(b *testing.B) { compareOwn(b, delayEntries()) }

// The closures are written out, not made by a helper: one more call would be a
// tenth of what is measured.
func delayEntries() []entry {
	return []entry{
		{"hand-written", func(context.Context) func() error {
			i, sum := 0, time.Duration(0)
			return func() error { sum += handDelay(i & 7); i++; return nil }
		}},
		{"tideover", func(context.Context) func() error {
			s := backoff.Schedule{Kind: backoff.Exponential, Base: baseDelay, Cap: capDelay, Jitter: backoff.Equal}
			i, sum := 0, time.Duration(0)
			return func() error { sum += s.Delay(i&7+1, 0, rand.Uint64()); i++; return nil }
		}},
		{"tideover-compiled", func(context.Context) func() error {
			s := backoff.Schedule{Kind: backoff.Exponential, Base: baseDelay, Cap: capDelay, Jitter: backoff.Equal}
			t := s.Compile()
			i, sum := 0, time.Duration(0)
			return func() error { sum += t.Delay(i&7+1, 0, rand.Uint64()); i++; return nil }
		}},
		{"cenkalti", func(context.Context) func() error {
			e := cenkaltiBackOff()
			i, sum := 0, time.Duration(0)
			return func() error {
				if i&7 == 0 {
					e.Reset()
				}
				sum += e.NextBackOff()
				i++
				return nil
			}
		}},
		{"k8s-wait", func(context.Context) func() error {
			k := k8sBackoff()
			i, sum := 0, time.Duration(0)
			return func() error {
				if i&7 == 0 {
					k = k8sBackoff()
					k.Steps = 8
				}
				sum += k.Step()
				i++
				return nil
			}
		}},
		{"gax", func(context.Context) func() error {
			g := gaxBackoff()
			i, sum := 0, time.Duration(0)
			return func() error {
				if i&7 == 0 {
					g = gaxBackoff()
				}
				sum += g.Pause()
				i++
				return nil
			}
		}},
		{"avast", func(context.Context) func() error {
			r := avast.New(avast.Delay(baseDelay), avast.MaxDelay(capDelay))
			i, sum := uint(0), time.Duration(0)
			return func() error { sum += avast.FullJitterBackoffDelay(i&7, nil, r); i++; return nil }
		}},
		{"sethvargo", func(context.Context) func() error { // it has no reset: a new one every eight steps
			s := sethvargoDelays()
			i, sum := 0, time.Duration(0)
			return func() error {
				if i&7 == 0 {
					s = sethvargoDelays()
				}
				d, _ := s.Next()
				sum += d
				i++
				return nil
			}
		}},
	}
}
