package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/info"
)

var (
	ErrInput    = errors.New("input")     // an input is not JSON, can't be prepared, or can't be decoded
	ErrTooLarge = errors.New("too large") // an input, a result or a request is larger than its limit
)

// CheckSize returns an error if an input of this size is too large.
func CheckSize(size, most int) error {
	if size <= most {
		return nil
	}
	return fmt.Errorf("input: %w: %d bytes, at most %d; store it elsewhere and pass a reference", ErrTooLarge, size, most)
}

// Prepare returns the input of a run that is started with this value: the result of the function of
// PrepareInput. at is the time of a scheduled start, and zero for other starts. A panic of the function
// is an error.
func (w *Workflow) Prepare(given json.RawMessage, at time.Time) (input json.RawMessage, err error) {
	if w.prepare == nil {
		return given, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: panic: %v", ErrInput, p)
		}
	}()
	if input, err = w.prepare(given, at); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	return input, nil
}

// InputOf returns the input of a run as it is stored: prepared and checked. Its size is not
// checked.
func (w *Workflow) InputOf(input any) (json.RawMessage, error) {
	text, ok := input.(json.RawMessage)
	if !ok {
		var err error
		if text, err = json.Marshal(input); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInput, err)
		}
	} else if len(text) > 0 && !json.Valid(text) {
		return nil, fmt.Errorf("%w: not JSON", ErrInput)
	}
	return w.prepareFrom(input, text, time.Time{})
}

// prepareFrom is Prepare that also checks whether the result can be decoded as the input type of the steps. It
// does not decode it if the given value has that type already.
func (w *Workflow) prepareFrom(value any, given json.RawMessage, at time.Time) (json.RawMessage, error) {
	input, err := w.Prepare(given, at)
	if err != nil || w.input == nil || len(input) == 0 || reflect.TypeOf(value) == w.input {
		return input, err
	}
	if err := json.Unmarshal(input, reflect.New(w.input).Interface()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	return input, nil
}

// NextInput returns the input of the run that continues another one of the same workflow. most is the
// largest size in bytes.
func (w *Workflow) NextInput(given json.RawMessage, most int) (json.RawMessage, error) {
	input, err := w.InputOf(given)
	if err == nil {
		err = CheckSize(len(input), most)
	}
	if err != nil {
		return nil, fmt.Errorf("again: %w", err)
	}
	return input, nil
}

// RepeatInput prepares and checks the input of a run that repeats another, like the input
// of a start. most is the largest size in bytes.
func (w *Workflow) RepeatInput(given json.RawMessage, run *info.Info, most int) (json.RawMessage, error) {
	if len(given) > most {
		return nil, fmt.Errorf("input: %w: %d bytes, at most %d", ErrTooLarge, len(given), most)
	}
	if len(given) > 0 && !json.Valid(given) {
		return nil, fmt.Errorf("%w: not JSON", ErrInput)
	}
	key := run.OriginKey
	if run.Origin == "" {
		key = run.Key
	}
	return w.prepareFrom(nil, given, scheduledTime(key))
}

// scheduledTime returns the time for which a schedule started the run with this key; zero
// if the key is not that of a schedule.
func scheduledTime(key string) time.Time {
	rest, ok := strings.CutPrefix(key, "schedule/")
	if !ok {
		return time.Time{}
	}
	at, _ := time.Parse(time.RFC3339, rest[strings.LastIndexByte(rest, '/')+1:])
	return at
}

// SameJSON reports whether two texts are the same JSON value. An empty text means null.
func SameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, errA := decodeJSON(a)
	y, errB := decodeJSON(b)
	return errA == nil && errB == nil && reflect.DeepEqual(x, y)
}

// decodeJSON decodes a value. Numbers stay as they are written: two that differ only
// beyond the precision of a float64 are not the same.
func decodeJSON(text []byte) (v any, err error) {
	if len(text) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// IsReference reports whether the input of a run is an [info.GaveUp] whose large parts are
// stored with the dead run.
func IsReference(input []byte) bool { return bytes.HasPrefix(input, []byte(`{"by_reference":{`)) }
