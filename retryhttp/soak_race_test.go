//go:build race

package retryhttp_test

// soakRequests is lower here, because requests take ten times as long with the race detector.
const soakRequests = 500
