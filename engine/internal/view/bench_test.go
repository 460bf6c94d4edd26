package view

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkWrite measures the cost of a run in batches of 1000: of writing it when it is new and when
// it ends, and of indexing its words; and its size on disk.
func BenchmarkWrite(b *testing.B) {
	const n = 100_000
	for _, perMilli := range []int{1, 20} {
		b.Run(fmt.Sprintf("%dk-per-second", perMilli), func(b *testing.B) {
			for b.Loop() {
				v := openTest(b)
				perRun := func(what string, f func()) {
					start := time.Now()
					f()
					b.ReportMetric(float64(time.Since(start).Nanoseconds())/n, what+"-ns/run")
				}
				rnd := rand.New(rand.NewPCG(1, 2))
				all := make([]Run, n)
				for i := range all {
					all[i] = order(rnd, i, perMilli)
				}
				write := func() {
					for i := 0; i < n; i += 1000 {
						if err := v.Write(b.Context(), Batch{Cursor: v.Cursor() + 1, Put: all[i : i+1000]}); err != nil {
							b.Fatal(err)
						}
					}
				}
				perRun("insert", write)
				for i, r := range all {
					all[i] = finish(r)
				}
				perRun("update", write)
				plain := settled(b, v)
				perRun("index", func() {
					if _, err := v.Index(b.Context(), n); err != nil {
						b.Fatal(err)
					}
				})
				for i := range all {
					all[i].Attempts++
				}
				perRun("reupdate", write)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(plain)/n, "plain-B/run")
				b.ReportMetric(float64(settled(b, v))/n, "B/run")
			}
		})
	}
}

// BenchmarkRead measures reading a page of 50 of many runs.
func BenchmarkRead(b *testing.B) {
	n := 100_000
	v := openTest(b)
	rnd := rand.New(rand.NewPCG(1, 2))
	states := []string{"succeeded", "succeeded", "succeeded", "succeeded", "waiting", "dead", "running"}
	for i := 0; i < n; i += 1000 {
		put := make([]Run, 1000)
		for k := range put {
			put[k] = order(rnd, i+k, 1)
			if put[k].State = states[rnd.IntN(len(states))]; put[k].State == "waiting" {
				put[k].Next = put[k].Created.Add(time.Duration(rnd.IntN(1e9)))
			}
		}
		write(b, v, put...)
	}
	index(b, v)
	for name, f := range map[string]Filter{
		"newest":            {},
		"dead":              {States: []string{"dead"}},
		"two states oldest": {States: []string{"dead", "waiting"}, Order: Oldest},
		"workflow":          {Workflow: "bill-order"},
		"next":              {States: []string{"waiting"}, Order: Soonest, Workflow: "send-mail"},
		"one error":         {Error: "post https://api.example.com/orders/1: 503 after 1ms"},
		"rare word":         {Search: "00000777"},
		"common word":       {Search: "morning", States: []string{"dead"}},
		"piece of a key":    {Search: "r-0007"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := v.List(b.Context(), f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("groups of the dead", func(b *testing.B) {
		for b.Loop() {
			if _, err := v.Groups(b.Context(), Filter{States: []string{"dead"}}, 20); err != nil {
				b.Fatal(err)
			}
		}
	})
}
