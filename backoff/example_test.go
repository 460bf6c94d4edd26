package backoff_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tideover/tideover/backoff"
)

func Example() {
	s := backoff.Schedule{
		Kind: backoff.Exponential,
		Base: 100 * time.Millisecond,
		Cap:  time.Second,
	}
	for retry, d := range s.Delays(nil) {
		fmt.Println(retry, d)
		if retry == 5 {
			break
		}
	}
	// Output:
	// 1 100ms
	// 2 200ms
	// 3 400ms
	// 4 800ms
	// 5 1s
}

func ExampleSchedule_Delay() {
	s := backoff.Schedule{Kind: backoff.Linear, Base: time.Second, Jitter: backoff.PlusMinus(0.2)}
	seeded := rand.NewPCG(1, 2)
	fmt.Println(s.Delay(3, 0, seeded.Uint64()).Round(time.Millisecond))
	// Output: 3.323s
}

func ExampleSchedule_Delay_decorrelated() {
	s := backoff.Schedule{Kind: backoff.Decorrelated, Base: time.Second, Cap: time.Minute}
	seeded := rand.NewPCG(1, 2)
	prev := time.Duration(0)
	for retry := 1; retry <= 3; retry++ {
		prev = s.Delay(retry, prev, seeded.Uint64())
		fmt.Println(prev.Round(time.Millisecond))
	}
	// Output:
	// 2.539s
	// 5.078s
	// 12.167s
}

func ExampleSchedule_Range() {
	s := backoff.Schedule{
		Kind: backoff.Exponential, Base: time.Second, Cap: 4 * time.Second,
		Jitter: backoff.PlusMinus(0.2),
	}
	for _, retry := range []int{1, 2, 50} {
		lo, hi := s.Range(retry, 0)
		fmt.Println(lo, hi)
	}
	// Output:
	// 800ms 1.2s
	// 1.6s 2.4s
	// 3.2s 4s
}

func ExampleSchedule_Bounds() {
	s := backoff.Schedule{Kind: backoff.Decorrelated, Base: time.Second, Cap: time.Minute}
	fmt.Println(s.Bounds(2))
	// Output: 1s 9s
}

func ExampleSchedule_Delays() {
	s := backoff.Schedule{Base: 2 * time.Second}
	for retry, d := range s.Delays(rand.Uint64) {
		fmt.Println(retry, d)
		if retry == 2 {
			break
		}
	}
	// Output:
	// 1 2s
	// 2 2s
}

func ExampleSchedule_Validate() {
	s := backoff.Schedule{Kind: backoff.Exponential, Base: time.Minute, Cap: time.Second, Factor: 0.5}
	fmt.Println(s.Validate())
	// Output:
	// cap: 1s is below base 1m0s
	// factor: 0.5 is not between 1 and 1e+06
}

func ExampleSchedule_Random() {
	fmt.Println(backoff.Schedule{Base: time.Second}.Random())
	fmt.Println(backoff.Schedule{Base: time.Second, Jitter: backoff.Full}.Random())
	// Output:
	// false
	// true
}

func ExampleSchedule_Compile() {
	s := backoff.Schedule{Kind: backoff.Exponential, Base: 100 * time.Millisecond, Cap: 10 * time.Second, Jitter: backoff.Equal}
	t := s.Compile() // once, for many delays
	for retry := range 3 {
		u := uint64(retry) << 62 // a real program uses rand.Uint64
		fmt.Println(t.Delay(retry+1, 0, u), t.Delay(retry+1, 0, u) == s.Delay(retry+1, 0, u))
	}
	// Output:
	// 50ms true
	// 125ms true
	// 300ms true
}

func ExampleParseBand() {
	for _, text := range []string{"20%", "+50%", "0.5..1.5", "full"} {
		b, err := backoff.ParseBand(text)
		fmt.Println(b.Lo, b.Hi, err)
	}
	// Output:
	// 0.8 1.2 <nil>
	// 1 1.5 <nil>
	// 0.5 1.5 <nil>
	// 0 1 <nil>
}

func ExamplePlusMinus() {
	fmt.Println(backoff.PlusMinus(0.2), backoff.PlusMinus(0.2) == backoff.Band{Lo: 0.8, Hi: 1.2})
	// Output: 20% true
}

func ExamplePlus() {
	fmt.Println(backoff.Plus(0.5), backoff.Plus(0.5) == backoff.Band{Lo: 1, Hi: 1.5})
	// Output: +50% true
}

func ExampleParseKind() {
	k, err := backoff.ParseKind("linear")
	fmt.Println(k, err)
	_, err = backoff.ParseKind("quadratic")
	fmt.Println(err)
	// Output:
	// linear <nil>
	// kind "quadratic": want fixed, linear, exponential or decorrelated
}
