package simulate_test

import (
	"fmt"

	"github.com/tideover/tideover/cmd/tideover/internal/simulate"
)

func ExampleParse() {
	_, err := simulate.Parse("shop.yaml", []byte(`duration: 1m
clients: {count: 10, arrivals: open, rat: 5}
services:
  - {name: shop, workers: -1, latency: {distribution: constant, mean: 10ms}}
`))
	fmt.Println(err)
	// Output:
	// shop.yaml:2:10: clients.rate: 0 is not above 0 and at most 1e+09 calls per second
	// >  2 | clients: {count: 10, arrivals: open, rat: 5}
	//                 ^
	// shop.yaml:2:38: clients: key "rat" is unknown; did you mean "rate"?
	// >  2 | clients: {count: 10, arrivals: open, rat: 5}
	//                                             ^
	// shop.yaml:4:27: services[0].workers: -1 is not between 0 and 1e+09
	// >  4 |   - {name: shop, workers: -1, latency: {distribution: constant, mean: 10ms}}
	//                                  ^
}

func ExampleDescribe() {
	f, _ := simulate.Preset("contention")
	for _, s := range simulate.Describe(f.Scenario) {
		fmt.Println(s)
	}
	// Output:
	// 50 writers change one shared resource at the same time. Each reads it, writes it, and starts again if another was first; a message takes 10ms +/- 2ms one way.
}
