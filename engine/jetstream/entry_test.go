package jetstream

import (
	"bytes"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/journal"
)

// stored returns the message of an entry as a server returns it.
func stored(e journal.Entry) message {
	m := encode("x.log.0", e)
	return message{Seq: e.Seq, header: m.Header, Data: bytes.Clone(m.Data)}
}

func FuzzEntry(f *testing.F) {
	f.Add(uint64(1), uint64(1), []byte("0123456789abcdef"), []byte("data"))
	f.Add(uint64(1<<63), uint64(0), []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, seq, epoch uint64, id, data []byte) {
		if seq == 0 {
			return
		}
		e := journal.Entry{Seq: seq, Epoch: epoch, Data: data}
		copy(e.ID[:], id)
		got, err := decode(stored(e))
		if err != nil || got.Seq != e.Seq || got.Epoch != e.Epoch || got.ID != e.ID || !bytes.Equal(got.Data, e.Data) {
			t.Errorf("decode(encode(%+v)) = %+v, %v", e, got, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add("1 00000000", "00000000000000000000000000000000")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, entry, id string) {
		h := nats.Header{entryHeader: {entry}, natsjs.MsgIDHeader: {id}}
		if _, err := decode(message{Seq: 1, header: h}); err != nil && !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("decode with %q, %q = %v; want %v", entry, id, err, journal.ErrDamaged)
		}
	})
}

func TestADamagedEntryIsNoticed(t *testing.T) {
	e := journal.Entry{Seq: 7, Epoch: 3, ID: journal.ID{1, 2, 3}, Data: []byte("what was recorded")}
	tests := []struct {
		name   string
		damage func(*message)
	}{
		{"other contents", func(m *message) { m.Data[3] ^= 1 }},
		{"shorter contents", func(m *message) { m.Data = m.Data[:5] }},
		{"another place", func(m *message) { m.Seq++ }},
		{"another id", func(m *message) { m.header.Set(natsjs.MsgIDHeader, "00"+m.header.Get(natsjs.MsgIDHeader)[2:]) }},
		{"a short id", func(m *message) { m.header.Set(natsjs.MsgIDHeader, "00") }},
		{"another epoch", func(m *message) { m.header.Set(entryHeader, "4"+m.header.Get(entryHeader)[1:]) }},
		{"no header", func(m *message) { m.header = nil }},
		{"a header without checksum", func(m *message) { m.header.Set(entryHeader, "3") }},
		{"a header that is none", func(m *message) { m.header.Set(entryHeader, "x y") }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := stored(e)
			if _, err := decode(m); err != nil {
				t.Fatal(err)
			}
			test.damage(&m)
			if _, err := decode(m); !errors.Is(err, journal.ErrDamaged) {
				t.Errorf("decode = %v; want %v", err, journal.ErrDamaged)
			}
		})
	}
}
