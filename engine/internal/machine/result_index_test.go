package machine

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/tideover/tideover/retry"
)

// An index finds the same results as a map of all of them, in whatever order they are asked for.
func TestResultIndex(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var encoded []byte
		var names []string
		want := map[string]OpResult{}
		for i := range rnd.IntN(100) {
			o := OpResult{
				Number: 1 + i*rnd.IntN(100), Name: fmt.Sprintf([]string{"do:op[%d]", "sleep:op%d", "do:o[p%d]"}[rnd.IntN(3)], rnd.Uint32()), Attempts: rnd.IntN(300), Spent: rnd.IntN(3),
				Began: rnd.Int64(), Ended: rnd.Int64(), Data: make([]byte, rnd.IntN(200)),
			}
			if rnd.IntN(4) == 0 {
				o.Reason, o.Code, o.Text = retry.StopAttempts, "code", "text"
			}
			encoded = o.append(encoded)
			names = append(names, o.Name)
			want[o.Name] = o
		}
		var x ResultIndex
		x.Init(encoded, rnd.IntN(50))
		check := func(name string, position int, got OpResult) {
			t.Helper()
			o, ok := want[name]
			if ok && got.Number == 0 { // that of Next
				o = OpResult{Name: o.Name, Data: o.Data}
			}
			if (position >= 0) != ok || ok && !reflect.DeepEqual(got, o) {
				t.Fatalf("seed %d: the result of %s is at %d: %+v; want %+v, %v", seed, name, position, got, o, ok)
			}
		}
		for range 5 {
			if rnd.IntN(2) == 0 {
				rnd.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
			}
			for _, name := range append(names, "do:other") {
				switch rnd.IntN(20) {
				case 0:
					i := x.Find(name)
					if i < 0 {
						check(name, i, OpResult{})
						break
					}
					check(name, i, x.Result(i))
					x.Remove(i)
					delete(want, name)
				case 1: // left out
				default:
					got, i := next(&x, name)
					check(name, i, got)
				}
			}
		}
		found := map[string]OpResult{}
		for i, name := range x.All() {
			found[name] = x.Result(i)
		}
		if !reflect.DeepEqual(found, want) {
			t.Fatalf("seed %d: All has %d results, want %d", seed, len(found), len(want))
		}
	}
}

// next returns the result that Next returns: a complete one if the operation has failed.
func next(x *ResultIndex, identity string) (OpResult, int) {
	kind, name, _ := strings.Cut(identity, ":")
	name, key, _ := strings.Cut(strings.TrimSuffix(name, "]"), "[")
	identity, data, failure, position := x.Next(kind, name, key)
	if failure != nil {
		return *failure, position
	}
	return OpResult{Name: identity, Data: data}, position
}

// A result that can't be read ends the index: it is as if it and those after it did not exist.
func TestResultIndexOfDamagedResults(t *testing.T) {
	var encoded []byte
	for i := range 3 {
		o := OpResult{Number: i + 1, Name: fmt.Sprintf("do:%d", i), Data: []byte("1")}
		encoded = o.append(encoded)
	}
	for n := range encoded {
		var x ResultIndex
		x.Init(encoded[:n], 3)
		count := 0
		for range x.All() {
			count++
		}
		for i := range 3 {
			if _, position := next(&x, fmt.Sprintf("do:%d", i)); (position >= 0) != (i < count) {
				t.Errorf("of %d bytes, with %d results, the result %d is at %d", n, count, i, position)
			}
		}
	}
}
