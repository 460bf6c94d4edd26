package output

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/textfmt"
)

// WriteText writes the whole output as text: the request or the command, the status of the response,
// a title for each stream, its beginning and its end, and between them how much is omitted. It does
// not change the bytes of the output.
func (r *Record) WriteText(w io.Writer) {
	for _, line := range []string{r.Request, r.Command, r.Status} {
		if line != "" {
			fmt.Fprintf(w, "%s\n", line)
		}
	}
	if r.Request+r.Command+r.Status != "" {
		fmt.Fprintln(w)
	}
	titled := len(r.Streams) > 1
	for i := range r.Streams {
		s := &r.Streams[i]
		if titled && s.Size > 0 {
			fmt.Fprintf(w, "--- %s: %s\n", s.Name, textfmt.Plural(int(s.Size), "byte"))
		}
		s.writeText(w)
	}
}

func (s *Stream) writeText(w io.Writer) {
	writeLines(w, s.Head)
	if text := s.OmittedText(); text != "" {
		fmt.Fprintf(w, "--- %s ---\n", text)
	}
	writeLines(w, s.Tail)
}

// writeLines writes text, and a line end if it has none.
func writeLines(w io.Writer, text []byte) {
	_, _ = w.Write(text)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		_, _ = io.WriteString(w, "\n")
	}
}

// OmittedText says how much of the stream is omitted; "" if nothing is.
func (s *Stream) OmittedText() string {
	switch n := s.Omitted(); {
	case n > 0:
		return textfmt.Plural(int(n), "byte") + " omitted"
	case s.More:
		return "the rest was not read"
	}
	return ""
}

// Line is a line of a stream.
type Line struct {
	Stream string
	Number int64 // from 1
	Text   string
}

// Search returns the lines that contain the text, without regard to case, at most that many, and the
// number of all lines that do. It removes escape sequences of terminals before it searches.
func (r *Record) Search(text string, most int) (list []Line, found int) {
	pattern := regexp.MustCompile("(?i)" + regexp.QuoteMeta(strings.ToValidUTF8(text, "\uFFFD")))
	for i := range r.Streams {
		s := &r.Streams[i]
		for _, part := range []struct {
			text  []byte
			first int64
		}{{s.Head, 1}, {s.Tail, s.Lines - int64(bytes.Count(s.Tail, newline)) + 1}} {
			n := part.first
			for line := range strings.Lines(Plain(part.text)) {
				if pattern.MatchString(line) {
					if found++; len(list) < most {
						list = append(list, Line{s.Name, n, strings.TrimSuffix(line, "\n")})
					}
				}
				n++
			}
		}
	}
	return list, found
}

// escapeSequence matches an escape sequence of a terminal. It does not reach over the end of a line.
var escapeSequence = lazyregexp.New(`\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])`)

// Plain returns text without the escape sequences of terminals, as valid UTF-8. Lines stay the same.
func Plain(text []byte) string {
	plain := strings.ToValidUTF8(string(text), "\uFFFD")
	return strings.ReplaceAll(escapeSequence.ReplaceAllString(plain, ""), "\r\n", "\n")
}
