package jetstream

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tideover/tideover/engine/journal"
)

// oldest is the first version of the server with batches of direct gets and messages
// that expire.
var oldest = [2]int{2, 11}

// checkServer returns an error if the connected server is too old, or its message size
// limit too small.
func checkServer(c *conn) error {
	version := c.nc.ConnectedServerVersion()
	if v, ok := parseVersion(version); ok && slices.Compare(v[:2], oldest[:]) < 0 {
		return fmt.Errorf("the NATS server has version %s; at least %d.%d is needed", version, oldest[0], oldest[1])
	}
	if room := c.nc.MaxPayload(); room < journal.MaxEntry+maxHeader {
		return fmt.Errorf("the NATS server accepts messages of at most %d bytes; set its max_payload to at least %d, such as 1MB",
			room, journal.MaxEntry+maxHeader)
	}
	return nil
}

// maxHeader is more than the size of the headers of any message of this package.
const maxHeader = 2000

func parseVersion(text string) (v [3]int, ok bool) {
	text, _, _ = strings.Cut(text, "-")
	_, err := fmt.Sscanf(text+"\n", "%d.%d.%d\n", &v[0], &v[1], &v[2])
	return v, err == nil
}
