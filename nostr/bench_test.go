package nostr_test

import (
	"testing"

	"github.com/tideover/tideover/nostr"
)

func BenchmarkCheckID(b *testing.B) {
	e := fixedEvent(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := e.CheckID(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkCheckSignature(b *testing.B) {
	e := fixedEvent(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := e.CheckSignature(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkParseRelayMessage(b *testing.B) {
	m := nostr.Message{Type: nostr.TypeEvent, Sub: "s", Event: fixedEvent(b)}
	frame := m.Append(nil, false)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nostr.ParseRelayMessage(frame); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
