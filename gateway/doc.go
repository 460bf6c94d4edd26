// Package gateway stands before remote APIs that throttle, time out and fall
// over, so that a client in any language gets its request through: it points its
// base URL at /p/<provider>/ and goes on as before.
//
// One retry loop, that of package retryhttp, makes the attempts; this package
// says where each of them goes: which key, which provider, and when its turn is.
// It stores no bodies, translates nothing, and never sends a caller's credentials
// to another provider than the one it asked for.
package gateway
