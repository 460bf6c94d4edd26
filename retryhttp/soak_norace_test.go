//go:build !race

package retryhttp_test

const soakRequests = 10_000
