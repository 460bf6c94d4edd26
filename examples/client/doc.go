// Package client has the complete HTTP client of docs/http.md as an example: retries, timeouts, a
// breaker, a budget, metrics and a logger, shared by many goroutines.
package client
