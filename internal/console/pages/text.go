package pages

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// visible replaces characters that are invisible or change how others look: terminal escapes, marks
// of direction, joiners, bytes that are not UTF-8. It can process a whole page, since the templates
// contain none of them except line ends and tabs.
func visible(page []byte) []byte {
	i := bytes.IndexFunc(page, hidden)
	if i < 0 {
		return page
	}
	out := append(make([]byte, 0, len(page)+len(page)/16), page[:i]...)
	for i < len(page) {
		r, n := utf8.DecodeRune(page[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, page[i])
		case !hidden(r) || r == utf8.RuneError:
			out = append(out, page[i:i+n]...)
		case r < 0x20:
			out = utf8.AppendRune(out, 0x2400+r) // ␛ and the like
		case r == 0x7f:
			out = append(out, "␡"...)
		default:
			out = fmt.Appendf(out, "[U+%04X]", r)
		}
		i += n
	}
	return out
}

// hidden reports whether a character is invisible or changes how others look.
func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x7f:
		return r < 0x20
	case r == utf8.RuneError:
		return true // possibly an invalid byte
	}
	return !unicode.IsPrint(r) && !unicode.Is(unicode.Zs, r)
}

// pretty indents JSON. It escapes invisible characters as JSON does, so that the text keeps its
// meaning when it is copied or edited. It returns text that is not JSON unchanged.
func pretty(text string) string {
	var b bytes.Buffer
	if json.Indent(&b, []byte(strings.TrimSpace(text)), "", "  ") != nil {
		return text
	}
	var out strings.Builder
	for _, r := range b.String() {
		switch {
		case !hidden(r) || r == utf8.RuneError:
			out.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// firstLine returns the first line of a text, cut to n characters. It adds " …" if something is left
// out.
func firstLine(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	line, _, more := strings.Cut(s, "\n")
	if utf8.RuneCountInString(line) > n {
		return strings.TrimRight(string([]rune(line)[:n]), " ") + " …"
	}
	if more {
		return line + " …"
	}
	return line
}

// cause is a chain of errors on one line. The cause is its end, which is shown also if there is no room
// for the start.
type cause struct{ Start, Cause, Title string }

const (
	shownError = 200 // characters of an error on one line; the middle of a longer one is left out
	keptCause  = 48  // characters up to which further links of the chain belong to the cause
	titleError = 2000
)

// newCause splits the first line of an error; nil for "".
func newCause(text string) *cause {
	if text == "" {
		return nil
	}
	line := []rune(firstLine(text, titleError))
	if n := len(line); n > shownError {
		line = slices.Concat(line[:shownError/2], []rune(" … "), line[n-shownError/2:])
	}
	all := string(line)
	at := strings.LastIndex(all, ": ") + 1
	for at > 0 {
		before := strings.LastIndex(all[:at-1], ": ") + 1
		if utf8.RuneCountInString(all[before:]) > keptCause {
			break
		}
		at = before
	}
	return &cause{all[:at], all[at:], textfmt.ClipWithin(text, titleError, "…")}
}

// head shortens the id of a run for display. Commands accept the result as an id: it contains the time,
// and enough of the rest to distinguish runs.
func head(id string) string {
	if len(id) != 26 {
		return firstLine(id, 26)
	}
	return id[:14]
}

// WaitSetter returns the name of the source of a wait as the command line shows it.
func WaitSetter(who string) string {
	if who == "human" {
		return "hand"
	}
	return who
}

// Hash returns the first n bytes of the SHA-256 checksum of a text, in hexadecimal.
func Hash(text string, n int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:n])
}

// InWords returns a sentence for the reason why a run or a step gave up.
func InWords(reason string) string {
	if r, ok := retry.ParseReason(reason); ok {
		return r.Error()
	}
	return strings.ReplaceAll(reason, "-", " ")
}
