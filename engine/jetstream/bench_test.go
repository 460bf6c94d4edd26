package jetstream

import (
	"bytes"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
)

// BenchmarkRead reads a log of many small entries, as after a restart.
func BenchmarkRead(b *testing.B) {
	const entries = 100_000
	nodes := natstest.Start(b, 1, natstest.WithSync("2m"))
	log, err := Open(b.Context(), Config{URL: nodes.URL(), Shards: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	fill(b, log, entries)
	l, err := log.Lease(b.Context(), 0)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		n := 0
		for _, err := range l.Read(b.Context(), 1) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != entries {
			b.Fatalf("%d entries", n)
		}
	}
	b.ReportMetric(entries*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}

// fill stores entries without waiting for each acknowledgement.
func fill(b *testing.B, log *Log, entries int) {
	b.Helper()
	js, err := natsjs.New(log.backend.c.nc, natsjs.WithPublishAsyncMaxPending(4000))
	if err != nil {
		b.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789"), 20)
	for seq := range entries {
		e := journal.Entry{Seq: uint64(seq + 1), Epoch: 1, ID: journal.ID{byte(seq), byte(seq >> 8), byte(seq >> 16)}, Data: data}
		m := encode(log.backend.names.logSubject(0), e)
		m.Header.Del(natsjs.ExpectedLastSeqHeader)
		if _, err := js.PublishMsgAsync(m, natsjs.WithStallWait(1e10)); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	js.CleanupPublisher()
}

// BenchmarkAppend appends one entry after the other.
func BenchmarkAppend(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		b.Run(map[int]string{1: "one node", 3: "three nodes"}[nodes], func(b *testing.B) {
			c := natstest.Start(b, nodes)
			log, err := Open(b.Context(), Config{URL: c.URL(), Shards: 1})
			if err != nil {
				b.Fatal(err)
			}
			defer log.Close()
			l, err := log.Lease(b.Context(), 0)
			if err != nil {
				b.Fatal(err)
			}
			var last uint64
			data := bytes.Repeat([]byte("0123456789"), 20)
			for b.Loop() {
				if last, err = l.Append(b.Context(), last, journal.ID{byte(last), byte(last >> 8), byte(last >> 16), 1}, data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
