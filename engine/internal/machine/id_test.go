package machine

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestIDsSortByTime(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		a, b := rng.Int64N(1<<62), rng.Int64N(1<<62)
		x, y := NewID(a, rng.Uint64(), rng.Uint64()), NewID(b, rng.Uint64(), rng.Uint64())
		if a/1e6 != b/1e6 && (a < b) != (bytes.Compare(x[:], y[:]) < 0) {
			t.Fatalf("NewID(%d) and NewID(%d) are out of order", a, b)
		}
		if bytes.Compare(x[:], y[:]) != strings.Compare(x.String(), y.String()) {
			t.Fatalf("%x and %x sort otherwise than %s and %s", x, y, x, y)
		}
	}
}

func TestParseID(t *testing.T) {
	largest := ID(bytes.Repeat([]byte{255}, 16))
	tests := []struct {
		name, text string
		want       ID
	}{
		{"the smallest", "00000000000000000000000001", ID{15: 1}},
		{"the largest", "7zzzzzzzzzzzzzzzzzzzzzzzzz", largest},
		{"one that is too large", "80000000000000000000000000", ID{}},
		{"none", "00000000000000000000000000", ID{}},
		{"nothing", "", ID{}},
		{"too short", "0000000000000000000000001", ID{}},
		{"too long", "000000000000000000000000001", ID{}},
		{"capitals", "0000000000000000000000000A", ID{}},
		{"letters that are taken for digits", "0000000000000000000000000l", ID{}},
		{"what is no letter", "0000000000000000000000000\xff", ID{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			id, err := ParseID(test.text)
			if id != test.want || (err != nil) != test.want.IsZero() {
				t.Errorf("ParseID(%q) = %x, %v, want %x", test.text, id, err, test.want)
			}
			if err == nil && id.String() != test.text {
				t.Errorf("its text is %q", id)
			}
		})
	}
}

func FuzzParseID(f *testing.F) {
	for _, s := range []string{"", "01mcc5rm000010000000000002", "7zzzzzzzzzzzzzzzzzzzzzzzzz", "8zzzzzzzzzzzzzzzzzzzzzzzzz"} {
		f.Add(s, []byte("0123456789abcdef"))
	}
	f.Fuzz(func(t *testing.T, text string, raw []byte) {
		if id, err := ParseID(text); err == nil && id.String() != text {
			t.Errorf("ParseID(%q) = %s", text, id)
		}
		if len(raw) != 16 {
			return
		}
		if id := ID(raw); !id.IsZero() {
			if got, err := ParseID(id.String()); got != id || err != nil {
				t.Errorf("ParseID(%q) = %x, %v, want %x", id, got, err, id)
			}
		}
	})
}
