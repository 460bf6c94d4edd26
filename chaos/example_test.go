package chaos_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/tideover/tideover/chaos"
	"github.com/tideover/tideover/retryhttp"
)

// myClient stands for the client to test.
var myClient = &http.Client{Transport: retryhttp.Must("fixed(1ms) attempts=5", nil)}

// The client must retry, but no more often than necessary.
func TestMyClientRetriesTwice(t *testing.T) {
	server := chaos.StartTest(t, "503,503,200")
	resp, err := myClient.Get(server.URL() + "/prices")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n := server.Stats().Requests; resp.StatusCode != 200 || n != 3 {
		t.Errorf("status %d after %d requests, want 200 after 3", resp.StatusCode, n)
	}
}

// A client that retries is answered by a server that fails twice.
func Example() {
	server := chaos.Must("503,503,200")
	defer server.Close()
	if err := server.Start(""); err != nil {
		panic(err)
	}
	client := &http.Client{Transport: retryhttp.Must("fixed(1ms) attempts=5", nil)} // yours
	resp, err := client.Get(server.URL() + "/prices")
	fmt.Println(resp.StatusCode, err, server.Stats().Requests, "requests")
	_ = resp.Body.Close()
	// Output: 200 <nil> 3 requests
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

func ExampleRule_With() {
	var r chaos.Rule
	for _, pair := range [][2]string{{"match", "POST /orders"}, {"per", "idempotency-key"}, {"script", "503,201"}, {"random", "reset=1%"}} {
		var err error
		if r, err = r.With(pair[0], pair[1]); err != nil {
			panic(err)
		}
	}
	fmt.Println(r)
	// Output: POST /orders: 503,201 per=idempotency-key reset=1%
}

func ExampleServer_Set() {
	server := chaos.Must("200")
	defer server.Close()
	if err := server.Set(chaos.MustParse("POST /v1: concurrent=4 reset=1%")); err != nil {
		panic(err)
	}
	fmt.Println(server.Spec())
	// Output: POST /v1: concurrent=4 reset=1%
}

// A body that ends too early, over TLS.
func ExampleWithTLS() {
	server := chaos.Must(`200(body="0123456789" cut=50%)`, chaos.WithTLS())
	defer server.Close()
	if err := server.Start(""); err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	resp, err := client.Get(server.URL())
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Printf("%s %v\n", body, err)
	// Output: 01234 unexpected EOF
}
