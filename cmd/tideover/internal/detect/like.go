package detect

import (
	"slices"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// limitWords are those of a limit, in whatever order a program has them.
var limitWords = lazyregexp.New(`(?i)\b(?:rate|usage|request|token)s?[ _-]?limit|\bquota\b|\btoo many requests\b|\blimit (?:is |was |has been )?(?:reached|exceeded|hit)\b|\b(?:try again|retry) (?:at|in|after)\b|\bresets? (?:at|in)\b`)

// NotUnderstood is what there is to say of a stop that no rule explains, and whose
// words are those of a limit.
const NotUnderstood = "not understood as a limit: 'tideover detect --explain' says why; a rule of your own: docs/detect.md"

// Misread returns NotUnderstood if the last lines have the words of a limit, and
// what was made of them is a crash.
func (s *Stop) Misread(tail []string) string {
	if s.Reason != Crashed || s.Rule != "" {
		return ""
	}
	if slices.ContainsFunc(tail[max(len(tail)-lastWords, 0):], limitWords.MatchString) {
		return NotUnderstood
	}
	return ""
}
