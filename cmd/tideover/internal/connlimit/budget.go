package connlimit

// Numbers for the division of file descriptors; see docs/security.md.
const (
	DefaultMax = 4096 // maximum connections of the TCP listener, if there are enough descriptors

	ownFiles      = 128 // databases, locks, logs, relays, connections of notifiers
	perAttempt    = 8   // pipes of a command and its guard, while it runs
	perConnection = 3   // the connection, the one to a provider, and the file of a large body
	maxSocket     = 512 // connections of the owner's socket
	leastOfAll    = 16
)

// Budget is the division of the file descriptors of a process.
type Budget struct {
	Descriptors int // limit of the process
	Reserve     int // for files, commands and the owner's socket
	Socket      int // connections of the owner's socket, a part of Reserve
	Connections int // possible connections of the TCP listener
}

// Divide divides the descriptors between connections and everything else, for a process with this
// many concurrent attempts. At least a quarter is for connections.
func Divide(descriptors, attempts int) Budget {
	b := Budget{Descriptors: descriptors, Socket: max(min(maxSocket, descriptors/8), leastOfAll)}
	b.Reserve = min(ownFiles+perAttempt*attempts+b.Socket, descriptors/4*3)
	b.Connections = max((descriptors-b.Reserve)/perConnection, leastOfAll)
	return b
}

// Default returns the default maximum of connections of the TCP listener.
func (b Budget) Default() int { return min(b.Connections, DefaultMax) }
