package chaos

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// split cuts a text where sep says, but neither inside parentheses nor inside
// quotes. sep gets the rest of the text from a character on.
func split(text string, sep func(rest string) bool) (parts []string, err error) {
	depth, begin, quoted := 0, 0, -1
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted >= 0:
			switch c {
			case '\\':
				i++
			case '"':
				quoted = -1
			}
		case c == '"':
			quoted = i
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth < 0 {
				return nil, fmt.Errorf("%q closes a parenthesis that is not open", text[begin:i+1])
			}
		case depth == 0 && sep(text[i:]):
			parts, begin = append(parts, text[begin:i]), i+1
		}
	}
	switch {
	case quoted >= 0:
		return nil, fmt.Errorf("%s has no closing quote", strconv.Quote(text[quoted:]))
	case depth > 0:
		return nil, fmt.Errorf("%s has no closing parenthesis", strconv.Quote(strings.TrimSpace(text[begin:])))
	}
	return append(parts, text[begin:]), nil
}

// at returns a separator that is one of the characters.
func at(chars string) func(string) bool {
	return func(rest string) bool { return strings.IndexByte(chars, rest[0]) >= 0 }
}

// words cuts a text at its white space.
func words(text string) ([]string, error) {
	parts, err := split(text, at(" \t\r\n"))
	if err != nil {
		return nil, err
	}
	var list []string
	for _, p := range parts {
		if p != "" {
			list = append(list, p)
		}
	}
	return list, nil
}

// cutWord cuts a word at its last = that is not inside parentheses or quotes.
func cutWord(word string) (key, value string, found bool) {
	parts, err := split(word, at("="))
	if err != nil || len(parts) < 2 {
		return word, "", false
	}
	value = parts[len(parts)-1]
	return word[:len(word)-len(value)-1], value, true
}

// plainValue are the characters, besides letters and digits, of a value that
// needs no quotes.
const plainValue = "._~%+:/*@-"

// unquote returns a value without its quotes, if it has any.
func unquote(value string) (string, error) {
	if !strings.HasPrefix(value, `"`) {
		if value == "" {
			return "", errors.New(`is empty; write "" for nothing`)
		}
		return value, nil
	}
	text, err := strconv.Unquote(value)
	if err != nil {
		return "", fmt.Errorf("%s is not a text in quotes", value)
	}
	return text, nil
}

// enquote writes a value, in quotes if it needs them.
func enquote(value string) string {
	special := func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune(plainValue, r)
	}
	if value == "" || strings.ContainsFunc(value, special) {
		return strconv.QuoteToASCII(value)
	}
	return value
}
