package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/tideover/tideover/retry"
)

// eventLog writes events as JSON lines. One without a file drops them.
type eventLog struct {
	file   *os.File
	out    *patient     // to the file
	failed func(string) // is told once that a line could not be written
	broken bool
}

// openEvents opens the target of --events: a file to append to, or the number
// of an open descriptor.
func openEvents(target string, grace time.Duration) (*eventLog, error) {
	if target == "" {
		return &eventLog{out: &patient{}}, nil
	}
	f, err := openTarget(target)
	return &eventLog{file: f, out: &patient{out: f, grace: grace}}, err
}

func openTarget(target string) (*os.File, error) {
	if fd, err := strconv.ParseUint(target, 10, 31); err == nil {
		return descriptor(int(fd))
	}
	return os.OpenFile(target, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

func (l *eventLog) write(e retry.Event) {
	if l.file == nil || l.broken {
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.out.Write(append(line, '\n'))
	}
	if err != nil {
		l.broken = true
		l.failed(fmt.Sprintf("--events: %v; no more events are written", err))
	}
}

func (l *eventLog) close() {
	if l.file != nil {
		_ = l.file.Close()
	}
}
