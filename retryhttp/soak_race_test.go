//go:build race

package retryhttp_test

// soakRequests is less where each takes ten times as long.
const soakRequests = 500
