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

// eventLog writes events as JSON lines. Without a file it drops them.
type eventLog struct {
	file   *os.File
	out    *graceWriter // writes to file
	failed func(string) // called once, with the reason, if a line could not be written
	broken bool         // a line could not be written; later events are dropped
}

// openEvents opens the target of --events: a file to append to, or the number of an open file
// descriptor. With an empty target it returns a log that drops its events.
func openEvents(target string, grace time.Duration) (*eventLog, error) {
	if target == "" {
		return &eventLog{out: &graceWriter{}}, nil
	}
	f, err := openTarget(target)
	return &eventLog{file: f, out: &graceWriter{out: f, grace: grace}}, err
}

func openTarget(target string) (*os.File, error) {
	if target == "-" {
		return nil, errors.New("- is not supported: use 1 for standard output, 2 for standard error, or a file")
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
	line, err := eventJSON(e)
	if err == nil {
		_, err = l.out.Write(append(line, '\n'))
	}
	if err != nil {
		l.broken = true
		l.failed(fmt.Sprintf("--events: %v; no further events are written", err))
	}
}

// attemptResult is how an attempt of a command ended. Its fields are added to the JSON of an event.
// Fields may be added, but not removed or renamed.
type attemptResult struct {
	ExitCode int  `json:"exit_code"` // the number that the next attempt gets in TIDEOVER_LAST_EXIT
	Signal   int  `json:"signal,omitempty"`
	TimedOut bool `json:"timed_out,omitempty"`
}

// eventJSON encodes an event. If the event reports the end of an attempt, the object also has the
// fields of attemptResult.
func eventJSON(e retry.Event) ([]byte, error) {
	line, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	var end attemptResult
	switch f, failed := errors.AsType[*failure](e.Err); {
	case failed && (e.Kind == retry.AttemptFailed || e.Kind == retry.GaveUp):
		end = attemptResult{resultCode(&f.Result), int(f.Signal), f.TimedOut}
	case e.Kind != retry.Succeeded:
		return line, nil
	}
	more, err := json.Marshal(end)
	if err != nil {
		return nil, err
	}
	return append(append(line[:len(line)-1], ','), more[1:]...), nil
}
