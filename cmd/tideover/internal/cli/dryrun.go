package cli

import (
	"fmt"
	"io"
	"math/rand/v2"
	"text/tabwriter"
	"time"

	"github.com/tideover/tideover/retry"
)

// dryRunRows is how many attempts of an unlimited policy are shown.
const dryRunRows = 12

// random returns the source of the jitter that --seed asks for, nil without.
func (o *execOptions) random() func() uint64 {
	if !o.seeded {
		return nil
	}
	return rand.NewPCG(o.seed, 0).Uint64
}

// printSchedule says when the attempts would start if each failed at once: the
// range that the jitter leaves or, with a seed, the waits that it draws.
func printSchedule(out io.Writer, o *execOptions) error {
	p := o.policy
	fmt.Fprintf(out, "policy  %v\n\n", p)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "attempt\twait before it\twaited in all")
	fmt.Fprintln(w, "1\t-\t0s")
	var least, most time.Duration
	for k, d := range p.Delays(o.random()) {
		if k >= dryRunRows && p.Attempts == retry.Unlimited {
			fmt.Fprintln(w, "...\t\t")
			break
		}
		lo, hi := p.Bounds(k)
		if o.seeded {
			lo, hi = d, d
		}
		least, most = least+lo, most+hi
		if p.TotalTimeout > 0 && least >= p.TotalTimeout {
			fmt.Fprintf(w, "-\t%s\ttotal-timeout=%v\n", span(lo, hi), p.TotalTimeout)
			break
		}
		fmt.Fprintf(w, "%d\t%s\t%s\n", k+1, span(lo, hi), span(least, most))
	}
	return w.Flush()
}

func span(lo, hi time.Duration) string {
	if lo == hi {
		return short(lo)
	}
	return short(lo) + ".." + short(hi)
}
