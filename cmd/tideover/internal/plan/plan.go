package plan

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// How many retries a plan lists by default.
const (
	listAll   = 100 // a policy with at most this many retries is listed completely
	listLeast = 8   // of a longer one, at least this many,
	listMost  = 20  // and more until the delays stop growing, at most this many
)

// MaxList is the largest number of retries that a plan can list.
const MaxList = 10_000

// Options configure a plan.
type Options struct {
	List int     // maximum number of listed retries; 0 means all, or the first ones of a long policy
	Seed *uint64 // adds one random sample of the delays with this seed; nil means none
}

// Plan has the delays of one policy.
type Plan struct {
	Name    string // the text that the user gave
	Use     string // purpose, if it is a preset
	Policy  retry.Policy
	Retries []Retry // those listed, from the first on

	// Total is the sum of all waits, listed or not. It is nil if there is no limit.
	Total *Sum

	// WorstCase is the longest time of the call with all attempts and waits, if no server states
	// a delay. It is 0 if that is unknown.
	WorstCase time.Duration

	Sampled bool // the samples are set

	constant bool    // all later retries are like the last listed one
	reach    reached // which retries the total timeout allows
}

// Retry is one retry of a plan.
type Retry struct {
	N         int
	Delay     time.Duration // without jitter
	Low, High time.Duration // band of the jitter
	Sample    time.Duration // one random wait
	Sum       Sum           // of the waits so far, including this one
	Never     bool          // the total timeout always ends the call before it
}

// Sum is a sum of waits.
type Sum struct {
	Delay     time.Duration // without jitter
	Low, High time.Duration // shortest and longest
	Sample    time.Duration // as sampled
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

// Attempts returns the number of attempts; retry.Unlimited for no limit.
func (p *Plan) Attempts() int {
	if r := p.Policy.Retries(); r != retry.Unlimited {
		return r + 1
	}
	return retry.Unlimited
}

// Whole reports whether every retry is listed.
func (p *Plan) Whole() bool { return len(p.Retries) == p.Policy.Retries() }

// sample draws one wait for each listed retry. The same seed draws the same waits, independent of
// other policies.
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
