package retryhttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// The program on the page about HTTP is the same as the example, so that it compiles and
// has the output that the page shows.
func TestThePageShowsTheExample(t *testing.T) {
	t.Parallel()
	page, err1 := os.ReadFile("../docs/http.md")
	code, err2 := os.ReadFile("example_test.go")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	_, body, ok := strings.Cut(string(code), "func ExampleCheck() {\n")
	_, body, ok2 := strings.Cut(body, "\n\n")
	body, _, ok3 := strings.Cut(body, "\tfmt.Println")
	if !ok || !ok2 || !ok3 {
		t.Fatal("the example looks otherwise")
	}
	want := strings.ReplaceAll("\n"+body, "\n\t", "\n") // without the indentation
	if !strings.Contains(string(page), want) {
		t.Errorf("docs/http.md lacks\n%s", want)
	}
	_, block, _ := strings.Cut(string(page), "`retryhttp.GaveUp` has the")
	_, block, _ = strings.Cut(block, "```go\n")
	block, _, _ = strings.Cut(block, "```\n")
	_, example, _ := strings.Cut(string(code), "func ExampleGaveUp() {\n")
	example, _, _ = strings.Cut(example, "\n}\n")
	block = strings.ReplaceAll("\n"+block, "\n", "\n\t") // the indentation of the function
	if block = strings.TrimRight(block, "\t"); strings.TrimSpace(block) == "" || !strings.Contains(example, block) {
		t.Errorf("ExampleGaveUp lacks these lines of docs/http.md:\n%s", block)
	}
}

func TestEventsSayWhichRequest(t *testing.T) {
	t.Parallel()
	server := flaky()
	defer server.Close()
	var notes []string
	policy := retry.Must("fixed(0s) attempts=3").Policy()
	transport, err := retryhttp.New(policy, nil, retryhttp.WithRetry(retry.WithObserver(func(e retry.Event) {
		notes = append(notes, e.Kind.String()+" "+e.Note)
	})))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(server.URL, "http://", "http://user:hush@", 1)+"/a%20b?key=hush", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	about := "GET " + strings.TrimPrefix(server.URL, "http://") + "/a%20b"
	want := []string{
		"attempt-started ", "attempt-failed " + about, "waiting " + about, "attempt-started ", "attempt-failed " + about, "waiting " + about, "attempt-started ", "succeeded ",
	}
	if !slices.Equal(notes, want) {
		t.Errorf("got %q, want %q", notes, want)
	}
}

func TestErrorsSayWhatHelps(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer server.Close()
	transport, err := retryhttp.New(retry.Must("fixed(0s) attempts=3").Policy(), nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	_, err = client.Post(server.URL, "text/plain", strings.NewReader("x"))
	if text := fmt.Sprint(err); !strings.HasSuffix(text, "EOF: not retried: the request may have been processed and is not idempotent (give it an Idempotency-Key, or use WithIdempotent)") ||
		strings.Contains(text, "permanent") {
		t.Error(text)
	}
	if !errors.Is(err, retry.StopPermanent) || !errors.Is(err, retryhttp.ErrNotIdempotent) {
		t.Errorf("%v is not what it was", err)
	}
}
