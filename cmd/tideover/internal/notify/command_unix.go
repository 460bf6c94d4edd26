//go:build unix

package notify

// errNoCommands is nil, because commands can run on Unix. On other systems it is the
// reason why they can't.
var errNoCommands error
