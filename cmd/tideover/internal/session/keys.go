package session

import (
	"bytes"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// keyLog remembers when the user typed last.
type keyLog struct {
	mu    sync.Mutex
	at    time.Time
	draft bool // Enter was not typed since
}

// terminalReport is what a terminal says by itself, on the same way as keys: where the
// cursor is, that the window has the focus, where the mouse is, what it can do.
var terminalReport = lazyregexp.New(`\x1b\[(?:[IO]|[0-9;]+[Rnt]|[?>=][0-9;]*[cnuy$]+|<[0-9;]+[Mm]|M(?s:...))|\x1b[\]P_][^\x07\x1b]*(?:\x07|\x1b\\)`)

// typed notes what was typed.
func (k *keyLog) typed(text []byte, now time.Time) {
	text = terminalReport.ReplaceAll(text, nil)
	if len(text) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at, k.draft = now, !bytes.ContainsAny(text[len(text)-1:], "\r\n")
}

// touch notes that the user did something that is no typing.
func (k *keyLog) touch() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at = time.Now()
}

func (k *keyLog) last() (t time.Time, draft bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at, k.draft
}
