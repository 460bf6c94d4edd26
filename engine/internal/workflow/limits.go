package workflow

import "github.com/tideover/tideover/internal/validate"

// Limits are the limits of a workflow, for all its runs together. The zero value limits nothing. Only
// the option that sets a limit and the admission, which keeps steps from beginning, know its field:
// everything between them passes the limits on as a whole.
type Limits struct {
	Runs     int            // runs in progress; 0 means no limit
	Attempts map[string]int // attempts at once, by step; a step without a limit is not in it
}

// Limited reports whether there is a limit.
func (l Limits) Limited() bool { return l.Runs > 0 || len(l.Attempts) > 0 }

// check adds what is wrong with the limits. That of the attempts of a step is checked with the step.
func (l Limits) check(found *validate.Problems) { validate.NotNegative(found, "max runs", l.Runs) }

// limitAttempts limits the attempts of a step. 0 means no limit.
func (l Limits) limitAttempts(step string, n int) {
	if n > 0 {
		l.Attempts[step] = n
	}
}
