package chaos_test

import (
	"fmt"
	"io"
	"net/http"

	"github.com/tideover/tideover/chaos"
)

// A server that fails twice, and then does not.
func Example() {
	server, err := chaos.New(chaos.MustParse("503,429(retry-after=2),200"))
	if err != nil {
		panic(err)
	}
	if err := server.Start(""); err != nil {
		panic(err)
	}
	defer server.Close()
	for range 3 {
		resp, err := http.Get(server.URL() + "/v1/models")
		if err != nil {
			panic(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		fmt.Printf("%d %q\n", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	fmt.Println(server.Stats().Requests, "requests")
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// 503 ""
	// 429 "2"
	// 200 ""
	// 3 requests
}

func ExampleParse() {
	spec, err := chaos.Parse("/v1/messages: 429(retry-after=2)x2,200; *: fail=20% delay=50ms..200ms")
	fmt.Println(len(spec.Rules), err)
	_, err = chaos.Parse("503,5O3,200")
	fmt.Println(err)
	// Output:
	// 2 <nil>
	// chaos: rule 1 "503,5O3,200": "5O3" is no answer; want a status from 200 to 599, such as 503 or 429(retry-after=2), or one of hang, reset, close, malformed, fail, refuse
}

func ExampleServer_Set() {
	server, err := chaos.New(chaos.MustParse("200"))
	if err != nil {
		panic(err)
	}
	defer server.Close()
	if err := server.Set(chaos.MustParse("POST /v1: concurrent=4 reset=1%")); err != nil {
		panic(err)
	}
	fmt.Println(server.Spec())
	// Output:
	// POST /v1: concurrent=4 reset=1%
}
