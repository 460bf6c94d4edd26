package machine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
)

func TestEntryRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var e Entry
	for n := range 50 {
		want := make([]Record, n)
		e.Reset(epoch+int64(n), int64(n))
		for i := range want {
			want[i] = randomRecord(rng)
			e.Add(&want[i])
		}
		size := e.Size()
		data := e.Bytes()
		if len(data) != size {
			t.Fatalf("%d bytes, Size said %d", len(data), size)
		}
		i := 0
		h, err := ReadEntry(data, func(_ Header, r *Record) error {
			if !reflect.DeepEqual(*r, want[i]) {
				t.Fatalf("record %d\n got %+v\nwant %+v", i, *r, want[i])
			}
			i++
			return nil
		})
		if err != nil || i != n || h != (Header{epoch + int64(n), int64(n)}) {
			t.Fatalf("ReadEntry = %+v, %v, %d records of %d", h, err, i, n)
		}
	}
}

func TestEntriesThatAreRefused(t *testing.T) {
	var e Entry
	e.Reset(epoch, 1)
	e.Add(&Record{Kind: Begun, At: epoch, Run: ID{1}})
	good := bytes.Clone(e.Bytes())
	newer := bytes.Clone(good[:len(good)-4])
	newer[0] = Format + 1
	tests := []struct {
		name string
		data []byte
		want error
	}{
		{"nothing", nil, ErrEncoding},
		{"too little", good[:4], ErrEncoding},
		{"a part", good[:len(good)-1], ErrEncoding},
		{"a byte more", append(bytes.Clone(good), 0), ErrEncoding},
		{"a newer format", summed(newer), ErrFormat},
		{"no header", summed([]byte{Format}), ErrEncoding},
		{"a kind that there is not", summed([]byte{Format, 0, 0, 200, 0, 0}), ErrEncoding},
		{"a part of a record that there is not", summed([]byte{Format, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 1, 0}), ErrEncoding},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := ReadEntry(test.data, func(Header, *Record) error { return nil }); !errors.Is(err, test.want) {
				t.Errorf("ReadEntry(%x) = %v, want %v", test.data, err, test.want)
			}
		})
	}
	stop := errors.New("stop")
	if _, err := ReadEntry(good, func(Header, *Record) error { return stop }); err != stop {
		t.Errorf("ReadEntry = %v, want the error of apply", err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if _, err := ReadEntry(bad, func(Header, *Record) error { return nil }); err == nil {
			t.Errorf("ReadEntry with byte %d changed is no error", i)
		}
	}
}

// summed returns the data with its checksum.
func summed(data []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(data), crc32.Checksum(data, castagnoli))
}

// bounded fails the test if the function allocates much more memory than its input has.
func bounded(t *testing.T, input int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20+4000*uint64(input) {
		t.Errorf("%d bytes of input took %d bytes of memory", input, n)
	}
}

func FuzzReadEntry(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 1))
	var e Entry
	for n := range 10 {
		e.Reset(epoch, 1)
		for range n {
			r := randomRecord(rng)
			e.Add(&r)
		}
		data := e.Bytes()
		f.Add(bytes.Clone(data[:len(data)-4]))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		bounded(t, len(data), func() {
			_, _ = ReadEntry(data, func(Header, *Record) error { return nil })
			var again Entry
			var all []Record
			h, err := ReadEntry(summed(data), func(_ Header, r *Record) error {
				all = append(all, *r)
				return nil
			})
			if err != nil {
				return
			}
			again.Reset(h.At, h.SinceBoot)
			for i := range all {
				again.Add(&all[i])
			}
			i := 0
			if _, err := ReadEntry(again.Bytes(), func(_ Header, r *Record) error {
				if !reflect.DeepEqual(*r, all[i]) {
					t.Errorf("record %d\n got %+v\nwant %+v", i, *r, all[i])
				}
				i++
				return nil
			}); err != nil || i != len(all) {
				t.Errorf("ReadEntry of what was read = %v, %d of %d", err, i, len(all))
			}
		})
	})
}
