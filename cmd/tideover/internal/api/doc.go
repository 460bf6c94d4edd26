// Package api is the one control API: HTTP and JSON, on a unix socket that only
// its owner can open and on a TCP listener with a token. Every verb of the
// command line and the page go through it.
//
// [New] makes the handler of /api/v1/, and [Guard] is what stands before it: who
// may ask, from where, how much at once. The page stands behind the same guard.
// [NewServer] and [ListenUnix] make what both are served with. [Dial] is the
// other side.
//
// It decides nothing about runs, which is the engine's, nor about [Sessions] or
// [Providers]. It is not for other machines, unless a listener with a token and
// TLS is put up on purpose.
package api
