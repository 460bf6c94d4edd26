package nip90client

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/textfmt"
)

// Input is what a job works on.
type Input struct {
	Data string
	Type string // one of InputTypes
}

// InputTypes returns what inputs can be: a text, an address, the id of an event,
// the id of another job whose result is the input.
func InputTypes() []string { return []string{"text", "url", "event", "job"} }

// ParseInput reads DATA or DATA,type. Data may have commas: only what follows the
// last one, and is a type, is the type.
func ParseInput(text string) (Input, error) {
	in := Input{Data: text, Type: "text"}
	if i := strings.LastIndexByte(text, ','); i >= 0 && slices.Contains(InputTypes(), text[i+1:]) {
		in = Input{text[:i], text[i+1:]}
	}
	return in, in.check()
}

func (in Input) check() error {
	switch {
	case in.Data == "":
		return errors.New("it is empty")
	case !utf8.ValidString(in.Data):
		return errors.New("it is not UTF-8")
	case in.Type == "url":
		if u, err := url.Parse(in.Data); err != nil || u.Scheme == "" {
			return fmt.Errorf("%q is not an address such as https://example.com/a", textfmt.TruncateMark(in.Data, maxQuoted, "…"))
		}
	case in.Type == "event" || in.Type == "job":
		if !isID(in.Data) {
			return fmt.Errorf("%q is not the id of an event, 64 hex digits in lower case", textfmt.TruncateMark(in.Data, maxQuoted, "…"))
		}
	}
	return nil
}

// ParseParam reads name=value.
func ParseParam(text string) (Param, error) {
	name, value, ok := strings.Cut(text, "=")
	switch {
	case !ok || name == "":
		return Param{}, fmt.Errorf("%q is not like name=value", textfmt.TruncateMark(text, maxQuoted, "…"))
	case !utf8.ValidString(text):
		return Param{}, errors.New("it is not UTF-8")
	}
	return Param{name, value}, nil
}

// isID reports whether the text is the id of an event.
func isID(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// maxQuoted is how much of a text an error quotes.
const maxQuoted = 60
