package machine

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/retry"
)

// randomRecord returns a record with a random subset of its fields set.
func randomRecord(rng *rand.Rand) (r Record) {
	some := func() bool { return rng.IntN(2) == 0 }
	number := func() int { return int(rng.Uint32N(1 << (1 + rng.Uint32N(31)))) }
	moment := func() int64 { return int64(rng.Uint64() >> rng.UintN(64)) }
	r.Kind, r.At = Kind(1+rng.IntN(int(kinds)-1)), moment()
	for _, set := range []func(){
		func() { r.Run[rng.IntN(16)] = 1 },
		func() { r.Step, r.Attempt, r.count = number(), number(), number() },
		func() { r.Due, r.Deadline = moment(), -moment() },
		func() { r.Delay, r.Prev = time.Duration(moment()), -time.Duration(moment()) },
		func() {
			r.By, r.Reason, r.Ends = retry.Source(rng.Uint32()), retry.Reason(rng.Uint32()), Outcome(rng.Uint32())
		},
		func() { r.other[rng.IntN(16)], r.Hash[rng.IntN(16)] = 2, 3 },
		func() { r.Text = string(make([]byte, rng.IntN(300))) },
		func() { r.Data = make([]byte, rng.IntN(3)) },
		func() {
			r.outputs = make([][]byte, rng.IntN(5))
			for i := range r.outputs {
				if some() {
					r.outputs[i] = make([]byte, rng.IntN(3))
				}
			}
		},
	} {
		if some() {
			set()
		}
	}
	return r
}

func TestRecordRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		checkRecord(t, randomRecord(rng), rng.Int64())
	}
	checkRecord(t, Record{Kind: Begun, Step: math.MaxInt32, Attempt: math.MaxInt32, At: math.MinInt64, Due: math.MaxInt64}, math.MaxInt64)
}

func checkRecord(t *testing.T, want Record, base int64) {
	t.Helper()
	data := want.append(nil, base)
	if len(data) > want.Size() {
		t.Fatalf("%+v takes %d bytes, more than its Size of %d", want, len(data), want.Size())
	}
	in := codec.Reader{Data: data}
	var got Record
	if got.read(&in, base); in.Err != nil || len(in.Data) != 0 {
		t.Fatalf("read(%+v) = %v, %d bytes left", want, in.Err, len(in.Data))
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("read\n got %+v\nwant %+v", got, want)
	}
	in = codec.Reader{Data: append(data, 77)}
	if at := skipRecord(&in, base); in.Err != nil || len(in.Data) != 1 || at != want.At {
		t.Fatalf("skip(%+v) = %d, %v, %d bytes left, want %d and 1 byte", want, at, in.Err, len(in.Data), want.At)
	}
	for cut := range min(len(data), 64) {
		in := codec.Reader{Data: data[:cut]}
		if got.read(&in, base); in.Err == nil {
			t.Fatalf("read of %d of %d bytes = %+v", cut, len(data), got)
		}
		in = codec.Reader{Data: data[:cut]}
		if at := skipRecord(&in, base); in.Err == nil {
			t.Fatalf("skip of %d of %d bytes = %d", cut, len(data), at)
		}
	}
}

func TestEveryKindHasAName(t *testing.T) {
	seen := map[string]bool{}
	for k := Opened; k < kinds; k++ {
		if k.String() == "" || k.String() == "unknown" || seen[k.String()] {
			t.Errorf("kind %d is called %q", k, k)
		}
		seen[k.String()] = true
	}
	if len(kindNames) != int(kinds) || kinds.String() != "unknown" {
		t.Errorf("%d names of %d kinds", len(kindNames), kinds)
	}
}

func FuzzRecord(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		r := randomRecord(rng)
		f.Add(byte(r.Kind), r.Run[:], r.Step, r.Attempt, r.At, r.Due, int64(r.Delay), int64(r.Prev), r.Deadline, byte(r.By), byte(r.Reason), byte(r.Ends), r.Text, r.Data, epoch)
	}
	f.Fuzz(func(t *testing.T, kind byte, ids []byte, step, attempt int, at, due, delay, prev, deadline int64, by, reason, ends byte, text string, data []byte, base int64) {
		want := Record{
			Kind: Kind(kind%byte(kinds-1) + 1), Step: step & math.MaxInt32, Attempt: attempt & math.MaxInt32, At: at, Due: due, Delay: time.Duration(delay),
			Prev: time.Duration(prev), By: retry.Source(by), Reason: retry.Reason(reason), Deadline: deadline, Text: text, Data: data, Ends: Outcome(ends),
		}
		copy(want.Run[:], ids)
		copy(want.other[:], text)
		copy(want.Hash[:], data)
		if len(ids) > 3 {
			want.outputs = [][]byte{ids, nil, {}}
		}
		checkRecord(t, want, base)
	})
}
