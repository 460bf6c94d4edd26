package session

import (
	"bytes"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// keyLog records when the user typed last.
type keyLog struct {
	mu    sync.Mutex
	at    time.Time
	draft bool // text was typed after the last Enter
}

// terminalReport matches input that the terminal sends itself: cursor position, focus, mouse,
// capabilities.
var terminalReport = lazyregexp.New(`\x1b\[(?:[IO]|[0-9;]+[Rnt]|[?>=][0-9;]*[cnuy$]+|<[0-9;]+[Mm]|M(?s:...))|\x1b[\]P_][^\x07\x1b]*(?:\x07|\x1b\\)`)

// typed records input that was read from the terminal, unless the terminal itself has sent it.
func (k *keyLog) typed(text []byte, now time.Time) {
	text = terminalReport.ReplaceAll(text, nil)
	if len(text) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at, k.draft = now, !bytes.ContainsAny(text[len(text)-1:], "\r\n")
}

// touch records an activity of the user other than typing.
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
