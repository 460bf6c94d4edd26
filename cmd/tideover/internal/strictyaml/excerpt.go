package strictyaml

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/secret"
)

const excerptWidth = 120

// excerpt returns a line of the file, with secrets masked, and a caret below the column,
// in the form that the YAML library uses:
//
//	> 12 |     polcy: api
//	           ^
//
// The library's own function needs a token, not a position, and also prints the lines
// around it, which may contain secrets.
func excerpt(lines []string, line, col int) string {
	if line < 1 || line > len(lines) {
		return ""
	}
	runes := []rune(lines[line-1][:min(len(lines[line-1]), 2*maxColumn)])
	for i, r := range runes {
		if r == '\t' {
			runes[i] = ' '
		} else if !unicode.IsPrint(r) {
			runes[i] = '?'
		}
	}
	// Mask the whole line before it is cut to excerptWidth: the key that marks its value
	// as a secret may be outside of the part that remains.
	text := string(runes)
	if inAuth(lines, line) {
		text = maskAuth(text, authItem)
	}
	masked := []rune(maskLine(text))
	caret := 0
	for end := min(max(col, 1)-1, len(runes), len(masked)); caret < end && runes[caret] == masked[caret]; {
		caret++ // stops at the begin of a mask, so that the caret does not point into it
	}
	start := 0
	if caret > excerptWidth-20 {
		start = caret - excerptWidth/2
	}
	head := fmt.Sprintf("> %2d | ", line)
	return head + string(masked[start:min(len(masked), start+excerptWidth)]) + "\n" +
		strings.Repeat(" ", len(head)+caret-start) + "^"
}

var (
	authPair   = lazyregexp.New(`(?:^|[\s{,])["']?(?:auth|key)["']?:\s*(\S.*)$`)
	authItem   = lazyregexp.New(`^\s*-\s+(\S.*)$`)
	authHead   = lazyregexp.New(`^\s*["']?auth["']?:\s*$`)
	notSecret  = lazyregexp.New(`\$\{(env|file):[^}]*\}|name["']?:\s*["']?[a-z0-9_.-]+|key["']?:|none`)
	secretPair = lazyregexp.New(`(?i)([a-z0-9_-]*(?:token|authorization|api[-_]?key|passw|secret|credential|private[-_]?key)[a-z0-9_-]*["']?\s*[:=]\s*)([^\s].*)$`)
	userInfo   = lazyregexp.New(`://[^\s:/@]*:[^\s"']+@`)
	linkUser   = lazyregexp.New(`(nats["']?:\s*|wss?://)(\S.*@)`) // after the key nats, or after the scheme of a list item or a relay
	queryKey   = lazyregexp.New(`(?i)[?&]key=[^\s&#"']+`)
	keyLike    = lazyregexp.New(`[A-Za-z0-9_+=-]{20,}`)
)

// maskLine masks everything in a line that may be a secret. In doubt it masks too much.
func maskLine(line string) string {
	line = maskAuth(line, authPair)
	if m := secretPair.FindStringSubmatchIndex(line); m != nil {
		value, _, _ := strings.Cut(line[m[4]:], ",")
		if !strings.Contains(value, "${") {
			line = line[:m[4]] + secret.Mask
		}
	}
	if m := linkUser.FindStringSubmatchIndex(line); m != nil && !strings.Contains(line[m[4]:m[5]], "${") {
		line = line[:m[4]] + secret.Mask + line[m[5]-1:]
	}
	line = maskText(line)
	return keyLike.ReplaceAllStringFunc(line, func(w string) string {
		if strings.ContainsAny(w, "0123456789") && strings.ContainsFunc(w, letter) {
			return secret.Mask
		}
		return w
	})
}

// maskAuth masks the rest of a line from the keys of a provider on, unless the keys are
// references. The first group of the pattern matches the keys.
func maskAuth(line string, pattern *lazyregexp.Regexp) string {
	m := pattern.FindStringSubmatchIndex(line)
	if m == nil {
		return line
	}
	value, end := line[m[2]:], ","
	if strings.HasPrefix(value, "[") {
		end = "]"
	}
	if pattern == authPair {
		value, _, _ = strings.Cut(value, end)
	}
	if !strings.ContainsFunc(notSecret.ReplaceAllString(value, ""), wordRune) {
		return line
	}
	return line[:m[2]] + secret.Mask
}

// inAuth reports whether the line is an item of the list auth of a provider.
func inAuth(lines []string, line int) bool {
	if !authItem.MatchString(lines[line-1]) {
		return false
	}
	for _, above := range slices.Backward(lines[:line-1]) {
		if above = strings.TrimSpace(above); above != "" && !strings.HasPrefix(above, "#") && !strings.HasPrefix(above, "- ") {
			return authHead.MatchString(above)
		}
	}
	return false
}

func wordRune(r rune) bool { return letter(r) || unicode.IsDigit(r) || r > 0x7f }

// maskText masks the secrets in a text: secrets of a known form, and the password and the
// parameter "key" of a URL. The URL need not be valid.
func maskText(text string) string {
	text = queryKey.ReplaceAllStringFunc(MaskKnown(text), func(s string) string {
		name, value, _ := strings.Cut(s, "=")
		if strings.HasPrefix(value, "${") || strings.HasPrefix(value, "{{") {
			return s
		}
		return name + "=" + secret.Mask
	})
	return userInfo.ReplaceAllStringFunc(text, func(s string) string {
		if strings.Contains(s, "${") {
			return s
		}
		return s[:strings.IndexByte(s[1:], ':')+2] + secret.Mask + "@"
	})
}

func letter(r rune) bool { return r|0x20 >= 'a' && r|0x20 <= 'z' }
