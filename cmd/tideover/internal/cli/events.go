package cli

import (
	"encoding/json"
	"errors"
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
	if target == "-" {
		return nil, errors.New("- is not the name of a file; 1 is standard output, and 2 is standard error")
	}
	if fd, err := strconv.ParseUint(target, 10, 31); err == nil {
		return descriptor(int(fd))
	}
	return os.OpenFile(target, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

func (l *eventLog) write(e retry.Event) {
	if l.file == nil || l.broken {
		return
	}
	line, err := withEnd(e)
	if err == nil {
		_, err = l.out.Write(append(line, '\n'))
	}
	if err != nil {
		l.broken = true
		l.failed(fmt.Sprintf("--events: %v; no more events are written", err))
	}
}

// attemptEnd is how an attempt of a command ended, beside what every event has. The
// names are only ever added to.
type attemptEnd struct {
	ExitCode int  `json:"exit_code"` // as TIDEOVER_LAST_EXIT has it
	Signal   int  `json:"signal,omitempty"`
	TimedOut bool `json:"timed_out,omitempty"`
}

// withEnd returns the JSON of an event, with the end of the attempt if that is what
// it tells of.
func withEnd(e retry.Event) ([]byte, error) {
	line, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	var end attemptEnd
	switch f, failed := errors.AsType[*failure](e.Err); {
	case failed && (e.Kind == retry.AttemptFailed || e.Kind == retry.GaveUp):
		end = attemptEnd{f.code(), int(f.Signal), f.TimedOut}
	case e.Kind != retry.Succeeded:
		return line, nil
	}
	more, err := json.Marshal(end)
	if err != nil {
		return nil, err
	}
	return append(append(line[:len(line)-1], ','), more[1:]...), nil
}

func (l *eventLog) close() {
	if l.file != nil {
		_ = l.file.Close()
	}
}
