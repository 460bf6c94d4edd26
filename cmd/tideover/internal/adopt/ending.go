package adopt

import (
	"strconv"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

// fail records an error message of the assistant, which is the last entry so far.
func (e *ending) fail(message string, at time.Time) {
	e.message, e.at, e.after = message, at, ""
}

// follow records why the last error message is not the last entry.
func (e *ending) follow(why string) {
	if e.message != "" && e.after == "" {
		e.after = why
	}
}

// quote quotes a word of a record for a message.
func quote(word string) string { return strconv.Quote(textfmt.TruncateValid(word, 50, "…")) }
