package session

import (
	"errors"
	"strings"
)

// Split splits a command line into arguments like a shell that only knows quotes and backslashes.
func Split(line string) (argv []string, err error) {
	var arg strings.Builder
	var quote rune
	open, escaped := false, false
	for _, c := range line {
		switch {
		case escaped:
			if quote == '"' && c != '"' && c != '\\' {
				arg.WriteByte('\\')
			}
			arg.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, open = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			arg.WriteRune(c)
		case c == '\'' || c == '"':
			quote, open = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if open {
				argv = append(argv, arg.String())
				arg.Reset()
				open = false
			}
		default:
			arg.WriteRune(c)
			open = true
		}
	}
	switch {
	case quote != 0:
		return nil, errors.New("a quote is not closed")
	case escaped:
		return nil, errors.New("the line ends with a backslash")
	case open:
		argv = append(argv, arg.String())
	}
	return argv, nil
}
