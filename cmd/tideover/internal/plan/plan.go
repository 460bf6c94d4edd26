package plan

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// How many retries a plan lists when nobody says.
const (
	listAll   = 100 // a policy of so many retries or fewer is listed whole
	listLeast = 8   // of a longer one, so many at least,
	listMost  = 20  // and more until the delays stop growing, up to here
)

// MaxList is the largest number of retries that a plan can list.
const MaxList = 10_000

// Options say what a plan has in it.
type Options struct {
	List int     // list so many retries at most; 0 means all, of a long policy the first
	Seed *uint64 // adds one sample of the delays, drawn from this seed; nil means none
}

// Plan is what one policy will do.
type Plan struct {
	Name    string // what the policy was asked for by
	Use     string // what it is for, if it is a preset
	Policy  retry.Policy
	Retries []Retry // those listed, from the first on

	// Total is what all the waits add up to, listed or not. It is nil when there
	// is no end to them.
	Total *Sum

	// WorstCase is the longest that the call can take with all its attempts and
	// waits, as long as no server states a delay. It is 0 when that is not known.
	WorstCase time.Duration

	Sampled bool // whether the samples are there

	constant bool    // whether the last listed retry is like all later ones
	reach    reached // what the total timeout leaves
}

// Retry is one retry of a plan.
type Retry struct {
	N         int
	Delay     time.Duration // without jitter
	Low, High time.Duration // the band the wait is drawn from
	Sample    time.Duration // one wait drawn from it
	Sum       Sum           // of the waits so far, this one included
	Never     bool          // the total timeout has always ended the call by then
}

// Sum is what some waits add up to.
type Sum struct {
	Delay     time.Duration // without jitter
	Low, High time.Duration // at best and at worst
	Sample    time.Duration // as sampled
}

// Parse reads the text form of a policy, or the name of a preset, and plans it.
func Parse(text string, o Options) (Plan, error) {
	p, err := retry.Parse(text)
	if err != nil {
		return Plan{}, err
	}
	return New(strings.Join(strings.Fields(text), " "), p, o), nil
}

// Presets plans every preset.
func Presets(o Options) []Plan {
	var plans []Plan
	for name := range retry.Presets {
		p, _ := retry.Preset(name)
		plans = append(plans, New(name, p, o))
	}
	return plans
}

// New plans a valid policy. name is what its reader knows it by.
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

// Attempts returns how many attempts the policy makes, retry.Unlimited for no
// limit.
func (p *Plan) Attempts() int {
	if r := p.Policy.Retries(); r != retry.Unlimited {
		return r + 1
	}
	return retry.Unlimited
}

// Whole reports whether every retry is listed.
func (p *Plan) Whole() bool { return len(p.Retries) == p.Policy.Retries() }

// sample draws one wait for each listed retry. The same seed draws the same
// waits, whatever other policies are planned beside this one.
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
