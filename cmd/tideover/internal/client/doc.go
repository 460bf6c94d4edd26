// Package client calls the API of a tideover server over its Unix socket or over TCP. [Dial]
// returns a [Client] for a [Target]; its methods return a [*control.Error] for a request that the
// server rejected, and an [*UnreachableError] if there is no server.
package client
