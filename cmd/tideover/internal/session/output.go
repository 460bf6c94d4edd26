package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// maxOutput limits the size of one part.
const maxOutput = 256 << 10

// OutputPart is a part of the output of a session.
type OutputPart struct {
	Text string `json:"text"`
	Next string `json:"next"`           // position after this part
	More bool   `json:"more,omitempty"` // more output is available
	Lost bool   `json:"lost,omitempty"` // the output at the given position is no longer stored
}

// ErrPosition means that a position was not returned by [Logs.Read].
var ErrPosition = errors.New("not a position of the output: use next of an answer, or nothing for the beginning")

// Read returns the output of a session after a position: "" is the beginning of the stored output,
// and [OutputPart.Next] is the position after a part. A session without output has an empty part.
func (l Logs) Read(name, after string) (OutputPart, error) {
	id, offset, err := parsePosition(after)
	if err != nil {
		return OutputPart{}, err
	}
	files, err := l.openAll(name)
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	if err != nil || len(files) == 0 {
		return OutputPart{Next: after}, err
	}
	at := 0
	if after != "" {
		for at < len(files) && fileID(files[at]) != id {
			at++
		}
	}
	part := OutputPart{Lost: at == len(files)}
	if part.Lost {
		at, offset = 0, 0
	}
	for ; ; at++ {
		text, end, err := readFrom(files[at], offset)
		if err != nil {
			return part, err
		}
		last := at == len(files)-1
		if len(text) == 0 && end && !last {
			offset = 0
			continue
		}
		part.Text = string(bytes.ToValidUTF8(text, []byte("\uFFFD")))
		part.Next = fmt.Sprintf("%x-%d", fileID(files[at]), offset+int64(len(text)))
		part.More = !end || !last
		return part, nil
	}
}

// readFrom reads a part of the file. It leaves out an incomplete character at the end.
func readFrom(f *os.File, offset int64) (text []byte, end bool, err error) {
	text = make([]byte, maxOutput)
	n, err := f.ReadAt(text, offset)
	end = errors.Is(err, io.EOF)
	if err != nil && !end {
		return nil, false, err
	}
	text = text[:n]
	for i := 1; i < utf8.UTFMax && i <= n; i++ {
		if tail := text[n-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) && n > i {
				text = text[:n-i]
			}
			break
		}
	}
	return text, end, nil
}

// openAll opens the files of a session, oldest first.
func (l Logs) openAll(name string) (files []*os.File, err error) {
	log := logFile{path: l.path(name)}
	for i := logKeep; i >= 0; i-- {
		f, err := os.Open(log.aside(i))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return files, err
		case len(files) > 0 && fileID(files[len(files)-1]) == fileID(f): // rotated meanwhile
			_ = f.Close()
		default:
			files = append(files, f)
		}
	}
	return files, nil
}

func parsePosition(text string) (id uint64, offset int64, err error) {
	if text == "" {
		return 0, 0, nil
	}
	first, second, _ := strings.Cut(text, "-")
	id, err1 := strconv.ParseUint(first, 16, 64)
	offset, err2 := strconv.ParseInt(second, 10, 64)
	if err1 != nil || err2 != nil || offset < 0 {
		return 0, 0, fmt.Errorf("%q is %w", text, ErrPosition)
	}
	return id, offset, nil
}

// escapeSequence matches terminal escape sequences.
var escapeSequence = lazyregexp.New(`\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])`)

// PlainText removes escape sequences, and characters that could change how a terminal shows the
// rest.
func PlainText(output string) string {
	text := strings.ReplaceAll(escapeSequence.ReplaceAllString(output, ""), "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return '\n'
		case r == '\n' || r == '\t' || unicode.IsGraphic(r):
			return r
		}
		return -1
	}, text)
}
