package sim

import (
	"runtime"
	"testing"
	"time"
)

// million returns a scenario in which the service is down when all clients call,
// and the clients retry until it works again.
func million(clients int) Scenario {
	return Scenario{
		Name: "million", Duration: 10 * second, Drain: 10 * time.Minute, Bucket: second,
		Clients:  Clients{Count: clients, Arrivals: Herd, Spread: 10 * second},
		Services: []Service{{Name: "service", Workers: 1000, Latency: Latency{Distribution: Exponential, Mean: 10 * ms}}},
		Failures: []Failure{{Kind: Outage, Until: 20 * second}},
	}
}

// BenchmarkMillion is one run with a million clients; B/client is the memory
// while all of them wait for their next attempt.
func BenchmarkMillion(b *testing.B) {
	const clients = 1_000_000
	for _, text := range []string{
		"exponential(1s..30s) jitter=full attempts=unlimited attempt-timeout=5s",
		"exponential(1s..30s) jitter=full attempts=unlimited attempt-timeout=5s budget=refund(1,0.1,10)",
	} {
		b.Run(text, func(b *testing.B) {
			c := contestant(b, text)
			p := newPlan(million(clients))
			before := heap()
			events, spent, bytes := 0, cpu(), 0.0
			for range b.N {
				w := &pausedModel{serviceModel: newServiceModel(p, &c, 1), at: int64(15 * second)} // all have called, no call has succeeded
				w.then = func() {
					idle := cpu()
					bytes = float64(heap()-before) / clients
					spent += cpu() - idle
				}
				n, err := runModel(b.Context(), &w.queue, w, int64(p.scenario.length()))
				if err != nil || w.done != clients {
					b.Fatalf("%d of the calls ended: %v", w.done, err)
				}
				events += n
			}
			took := cpu() - spent
			b.ReportMetric(float64(events)/took.Seconds()/1e6, "Mevents/cpu-s")
			b.ReportMetric(took.Seconds()/float64(b.N), "cpu-s/op")
			b.ReportMetric(float64(events)/float64(b.N)/1e6, "Mevents/op")
			b.ReportMetric(bytes, "B/client")
		})
	}
}

// BenchmarkClients uses every feature, with clients that pause, call, time out
// and retry.
func BenchmarkClients(b *testing.B) {
	for _, clients := range []int{100, 10_000} {
		b.Run(name("clients", clients), func(b *testing.B) {
			c := contestant(b, "default attempt-timeout=1s")
			p := newPlan(Scenario{
				Name: "clients", Duration: 100 * time.Hour, Bucket: time.Minute,
				Clients:  Clients{Count: clients, Arrivals: Closed, Think: second},
				Services: []Service{{Name: "service", Workers: clients / 5, Latency: Latency{Distribution: Exponential, Mean: 100 * ms}}},
				Failures: []Failure{{Kind: Errors, Share: 0.2}},
			})
			w := newServiceModel(p, &c, 1)
			before := cpu()
			for range b.N {
				e, _ := w.queue.next()
				w.handle(e)
			}
			b.ReportMetric(float64(b.N)/(cpu()-before).Seconds()/1e6, "Mevents/cpu-s")
		})
	}
}

// pausedModel calls a function at a moment of the run.
type pausedModel struct {
	*serviceModel
	at   int64
	then func()
}

func (s *pausedModel) handle(e event) {
	if e.at >= s.at && s.then != nil {
		s.then()
		s.then = nil
	}
	s.serviceModel.handle(e)
}

// heap returns the bytes of live objects.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestAnIdleClientIsSmall(t *testing.T) {
	const clients = 100_000
	c := contestant(t, "exponential(1s..30s) jitter=full attempts=unlimited attempt-timeout=5s")
	p := newPlan(million(clients))
	before := heap()
	w := newServiceModel(p, &c, 1)
	if _, err := runModel(t.Context(), &w.queue, w, int64(15*second)); err != nil {
		t.Fatal(err)
	}
	if got := (heap() - before) / clients; got > 200 {
		t.Errorf("a client that waits for its next attempt takes %d bytes, want at most 200", got)
	}
	runtime.KeepAlive(w)
}
