// Package client calls the API of a tideover server over its Unix socket or over TCP. [Dial]
// returns a [Client] for a [Target]. Its methods return a [*control.Error] if the server rejects a
// request, and an [*UnreachableError] if the server does not answer.
package client
