package cli

import (
	"log"
	"log/slog"
	"strings"

	"github.com/tideover/tideover/internal/secret"
)

// netLog is where net/http says what it has to say by itself. What it quotes was sent
// by somebody, and may be what a caller of the gateway has sent there before: nobody
// here knows that it is a secret.
type netLog struct{ log *slog.Logger }

// Write logs a line without its quotations.
func (n netLog) Write(line []byte) (int, error) {
	n.log.Warn(secret.Unquoted(strings.TrimSpace(string(line))))
	return len(line), nil
}

// adoptNetLog makes the log the place for it. It is for a process that serves, and
// does nothing else.
func adoptNetLog(l *slog.Logger) {
	log.SetFlags(0)
	log.SetOutput(netLog{l})
}
