package plan

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// By default, a plan lists all retries if there are at most listAll. Otherwise it lists at least
// listLeast and at most listMost, and stops when the delays stop growing. It never goes on after a
// retry that the total timeout prevents.
const (
	listAll   = 100
	listLeast = 8
	listMost  = 20
)

// MaxList is the largest number of retries that a plan can list.
const MaxList = 10_000

// Options configure a plan.
type Options struct {
	List int     // maximum number of listed retries; 0 means all, or 8 to 20 if there are more than 100
	Seed *uint64 // seed of one random sample of the delays; nil means no sample
}

// Plan has the delays of one policy.
type Plan struct {
	Name    string // the text that the user gave
	Use     string // purpose, if it is a preset
	Policy  retry.Policy
	Retries []Retry // the listed retries, beginning with the first

	// Total is the sum of all waits, listed or not. It is nil if the sum has no limit, or if there
	// are too many retries with different delays to add up.
	Total *Sum

	// WorstCase is the longest time of the call with all attempts and waits, if no server states
	// a delay. It is 0 if the time has no limit or is unknown.
	WorstCase time.Duration

	Sampled bool // the fields Sample are set

	constant bool    // all later retries have the delay of the last listed one
	reach    reached // which retries the total timeout allows
}

// Retry is one retry of a plan.
type Retry struct {
	N         int           // number of the retry, from 1
	Delay     time.Duration // delay before the retry, without jitter
	Low, High time.Duration // range from which jitter draws the delay
	Sample    time.Duration // one delay that was drawn from the range
	Sum       Sum           // sum of the waits up to this retry
	Never     bool          // the total timeout always ends the call before this retry
}

// Sum is a sum of waits.
type Sum struct {
	Delay     time.Duration // sum without jitter
	Low, High time.Duration // shortest and longest sum
	Sample    time.Duration // sum of the sampled waits
}

// Parse parses the text form of a policy, or the name of a preset, and returns its plan.
func Parse(text string, o Options) (Plan, error) {
	p, err := retry.Parse(text)
	if err != nil {
		return Plan{}, err
	}
	return New(strings.Join(strings.Fields(text), " "), p, o), nil
}

// Presets returns the plans of all presets.
func Presets(o Options) []Plan {
	var plans []Plan
	for name := range retry.Presets {
		p, _ := retry.Preset(name)
		plans = append(plans, New(name, p, o))
	}
	return plans
}

// New returns the plan of a valid policy. name is shown to the user.
func New(name string, p retry.Policy, o Options) Plan {
	pl := Plan{Name: name, Policy: p, Sampled: o.Seed != nil}
	for preset, use := range retry.Presets {
		if preset == name {
			pl.Use = use
		}
	}
	w := newWalk(p)
	list := w.listed(o.List)
	pl.Retries = w.run(list)
	pl.Total, pl.reach = w.total, w.reach
	pl.constant = list > 0 && w.constantFrom(list)
	pl.WorstCase = w.worstCase()
	if o.Seed != nil {
		pl.sample(*o.Seed)
	}
	return pl
}

// Attempts returns the number of attempts; retry.Unlimited if there is no limit.
func (p *Plan) Attempts() int {
	if r := p.Policy.Retries(); r != retry.Unlimited {
		return r + 1
	}
	return retry.Unlimited
}

// Whole reports whether all retries of the policy are listed.
func (p *Plan) Whole() bool { return len(p.Retries) == p.Policy.Retries() }

// sample draws one wait for each listed retry. The same seed draws the same waits, whichever other
// policies are shown beside it.
func (p *Plan) sample(seed uint64) {
	random := rand.NewPCG(seed, 0)
	sum := time.Duration(0)
	for k, d := range p.Policy.Delays(random.Uint64) {
		if k > len(p.Retries) {
			break
		}
		sum = add(sum, d)
		p.Retries[k-1].Sample = d
		p.Retries[k-1].Sum.Sample = sum
	}
	if p.Whole() {
		p.Total.Sample = sum
	}
}
