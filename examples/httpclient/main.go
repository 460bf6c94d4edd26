// Command httpclient fetches a page with an http.Client that retries. The three
// lines that make it are marked.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

func main() {
	if err := run(context.Background(), cmp.Or(os.Getenv("URL"), "http://127.0.0.1:7878/p/openai/v1/models")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	policy, err := retry.Parse("http base=100ms attempt-timeout=10s") // 1
	if err != nil {
		return err
	}
	transport, err := retryhttp.New(policy, nil) // 2
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport} // 3

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	fmt.Println(resp.Status, len(body) > 0)
	return nil
}
