//go:build unix

package cli

import (
	"regexp"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

var inlineCommand = regexp.MustCompile("`(tideover [^`]+)`")

// commandLines returns the command lines of a page that begin with tideover.
func commandLines(text string) (list []string) {
	for _, b := range clitest.FencedIn(text) {
		joined := strings.NewReplacer("\\\n", " ", "$(RETRY)", "tideover exec --attempts 3 --", "$$", "$").Replace(b.Text)
		for line := range strings.Lines(joined) {
			line = clitest.Variables.ReplaceAllString(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "")
			if strings.HasPrefix(line, "tideover ") {
				list = append(list, clitest.ShellComment.ReplaceAllString(line, ""))
			}
		}
	}
	for _, m := range inlineCommand.FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}
