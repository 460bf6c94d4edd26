package connlimit

// Numbers by which descriptors are divided; docs/security.md has them.
const (
	DefaultMax = 4096 // connections of the TCP listener, if there are enough descriptors

	ownFiles      = 128 // databases, locks, logs, relays, connections of notifiers
	perAttempt    = 8   // pipes of a command and its guard, while it runs
	perConnection = 3   // the connection, the one to a provider, and the file of a large body
	maxSocket     = 512 // connections of the owner's socket
	leastOfAll    = 16
)

// Budget is how the descriptors of a process are divided.
type Budget struct {
	Descriptors int // that the process may have
	Reserve     int // for files, commands and the owner's socket
	Socket      int // connections of the owner's socket, a part of Reserve
	Connections int // connections of the TCP listener for which there is room
}

// Divide divides descriptors between connections and everything else, for a process that makes so many
// attempts at once. At least a quarter is for connections.
func Divide(descriptors, attempts int) Budget {
	b := Budget{Descriptors: descriptors, Socket: max(min(maxSocket, descriptors/8), leastOfAll)}
	b.Reserve = min(ownFiles+perAttempt*attempts+b.Socket, descriptors/4*3)
	b.Connections = max((descriptors-b.Reserve)/perConnection, leastOfAll)
	return b
}

// Default returns how many connections the TCP listener has unless the configuration says otherwise.
func (b Budget) Default() int { return min(b.Connections, DefaultMax) }
