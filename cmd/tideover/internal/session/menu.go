package session

import (
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/internal/lazyregexp"
)

// waitMenu is the menu that Claude Code shows at a limit, with an option that waits for its end:
//
//	❯ /rate-limit-options
//	What do you want to do?
//	❯ 1. Stop and wait for limit to reset
//	  2. Upgrade your plan
type waitMenu struct {
	top      int    // its first row
	number   string // of the option that waits
	selected bool   // Enter chooses that option
}

var (
	waitOption = lazyregexp.New(`^[\s│┃║|]*([❯>›»]?)\s*([1-9])[.)] (?i:stop and wait)\b`)
	menuHead   = lazyregexp.New(`^[\s│┃║|]*(?:[❯>›»]\s*/rate-limit-options|(?i:what do you want to do\?))`)
)

// maxMenuHead is the most rows from the first row of the menu to the option that waits.
const maxMenuHead = 8

// findWaitMenu returns the menu on a screen, nil if there is none. Its question must be on the screen,
// so that a quotation of the option is none.
func findWaitMenu(lines []string) *waitMenu {
	for at := len(lines) - 1; at >= 0; at-- {
		m := waitOption.FindStringSubmatch(lines[at])
		if m == nil {
			continue
		}
		menu := &waitMenu{top: at, number: m[2], selected: m[1] != ""}
		for i := at - 1; i >= max(at-maxMenuHead, 0); i-- {
			if menuHead.MatchString(lines[i]) {
				menu.top = i
			}
		}
		if menu.top == at {
			return nil
		}
		return menu
	}
	return nil
}

// limit returns the limit above the menu; found is false if its message is not on the screen.
func (m *waitMenu) limit(found bool, got detect.OnScreen) detect.OnScreen {
	if !found {
		got.Reason, got.Rule, got.Line = detect.RateLimit, "menu", "Stop and wait for limit to reset"
	}
	got.Choice = true
	return got
}

// key returns the keys that choose the option that waits, or that move to it.
func (m *waitMenu) key() string {
	if m.selected {
		return "\r"
	}
	return m.number
}
