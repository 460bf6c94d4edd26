package limit

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/tideover/tideover/internal/decimal"
	"github.com/tideover/tideover/internal/enum"
)

// BudgetKind is the rule by which a budget grants retries.
type BudgetKind uint8

// The kinds of budget. The zero kind is NoBudget.
const (
	NoBudget     BudgetKind = iota // every retry is granted
	RefundBudget                   // a retry costs tokens, which are refunded if it succeeds
	RatioBudget                    // retries in flight are at most a fraction of calls in flight
	BucketBudget                   // failures remove tokens; no retries while at most half of them are left
)

var budgetNames = [...]string{"none", "refund", "ratio", "bucket"}

// String returns the kind's name in the text form of a policy.
func (k BudgetKind) String() string { return enum.Name(budgetNames[:], k, "budget") }

// BudgetSpec says which retries a budget grants: the value of the key "budget"
// of a policy. It is comparable, and its zero value grants every retry. Fields
// that the kind does not use must be zero.
type BudgetSpec struct {
	Kind   BudgetKind
	Cost   float64 // refund: price of a retry
	Credit float64 // refund: tokens added by a call that succeeds at its first attempt
	Max    float64 // refund, bucket: tokens at the start, and the most there can be
	Ratio  float64 // ratio: retries per call in flight; bucket: tokens added by a success

	// Throttled is the price of a retry in a refund budget after the
	// destination answered "too many requests". Such an answer costs the
	// destination little, so its retry may be cheaper. 0 means Cost.
	Throttled float64
}

// Refund returns a budget in which a retry costs tokens. They are refunded if
// the retry makes its call succeed, and a call that succeeds at its first
// attempt adds credit. There are never more tokens than ceiling, the number at
// the start.
//
// Use this kind unless there is a reason for another: while most retries
// succeed they cost nothing, and when the destination is down the tokens are
// gone after ceiling/cost retries, however many goroutines are calling.
func Refund(cost, credit, ceiling float64) BudgetSpec {
	return BudgetSpec{Kind: RefundBudget, Cost: cost, Credit: credit, Max: ceiling}
}

// Ratio returns a budget that keeps the retries in flight at or below f times
// the calls in flight, f at most 1. As in Envoy's retry budget, [MinRetries]
// are always granted; without that minimum a client with few calls could never
// retry.
func Ratio(f float64) BudgetSpec { return BudgetSpec{Kind: RatioBudget, Ratio: f} }

// Bucket returns the retry throttling of gRPC (proposal A6): a failed attempt
// removes one token, a successful call adds ratio tokens, and retries are
// granted only while more than half of the ceiling is left. Failures that are
// not retried count too.
func Bucket(ceiling, ratio float64) BudgetSpec {
	return BudgetSpec{Kind: BucketBudget, Max: ceiling, Ratio: ratio}
}

// ProviderBudget returns a budget like that of the AWS SDKs and other clients
// of large APIs: 500 tokens; a retry costs 14, or 5 after throttling.
func ProviderBudget() BudgetSpec {
	return BudgetSpec{Kind: RefundBudget, Cost: 14, Credit: 1, Max: 500, Throttled: 5}
}

// String returns the spec in the text form of a policy: "none",
// "refund(1,0.1,10)", "refund(14,1,500,5)", "ratio(0.2)" or "bucket(100,0.1)".
func (s BudgetSpec) String() string {
	if s.Kind == NoBudget {
		return s.Kind.String()
	}
	var args []string
	for _, f := range s.fields() {
		if f.used && (f.value != 0 || !f.optional) {
			args = append(args, decimal.Format(f.value))
		}
	}
	return s.Kind.String() + "(" + strings.Join(args, ",") + ")"
}

// ParseBudget parses the text form of a spec; see [BudgetSpec.String].
func ParseBudget(s string) (BudgetSpec, error) {
	if s == budgetNames[NoBudget] {
		return BudgetSpec{}, nil
	}
	call, closed := strings.CutSuffix(s, ")")
	name, args, _ := strings.Cut(call, "(")
	numbers, err := parseDecimals(args)
	spec, known := newSpec(name, numbers)
	if !closed || err != nil || !known {
		return BudgetSpec{}, fmt.Errorf(
			"budget %q: want none, refund(COST,CREDIT,MAX[,THROTTLED]), ratio(F) or bucket(MAX,RATIO)", s)
	}
	if problems := spec.problems(); problems != nil {
		return BudgetSpec{}, fmt.Errorf("budget %q: %s", s, strings.Join(problems, "; "))
	}
	return spec, nil
}

// newSpec returns the spec of the named kind with these numbers. It returns false if
// the kind is unknown or takes a different number of arguments.
func newSpec(name string, numbers []float64) (BudgetSpec, bool) {
	switch {
	case name == "refund" && len(numbers) == 3:
		return Refund(numbers[0], numbers[1], numbers[2]), true
	case name == "refund" && len(numbers) == 4 && numbers[3] != 0: // a zero is not accepted, so that each spec has one text form
		s := Refund(numbers[0], numbers[1], numbers[2])
		s.Throttled = numbers[3]
		return s, true
	case name == "ratio" && len(numbers) == 1:
		return Ratio(numbers[0]), true
	case name == "bucket" && len(numbers) == 2:
		return Bucket(numbers[0], numbers[1]), true
	}
	return BudgetSpec{}, false
}

// parseDecimals parses decimal numbers separated by commas.
func parseDecimals(s string) ([]float64, error) {
	var numbers []float64
	for word := range strings.SplitSeq(s, ",") {
		f, err := decimal.Parse(word)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, f)
	}
	return numbers, nil
}

// Validate reports everything that is wrong with the spec, each problem with
// its field's name.
func (s BudgetSpec) Validate() error { return joinProblems("budget", s.problems()) }

// joinProblems returns the problems of a field as one error, or nil if there are none.
func joinProblems(field string, problems []string) error {
	var errs []error
	for _, p := range problems {
		errs = append(errs, errors.New(field+": "+p))
	}
	return errors.Join(errs...)
}

func (s BudgetSpec) problems() []string {
	if int(s.Kind) >= len(budgetNames) {
		return []string{fmt.Sprintf("kind: %v is unknown", s.Kind)}
	}
	var problems []string
	for _, f := range s.fields() {
		if p := f.problem(s.Kind); p != "" {
			problems = append(problems, f.name+": "+p)
		}
	}
	if problems != nil {
		return problems // a comparison of invalid numbers would only add confusing problems
	}
	return s.conflicts()
}

// conflicts returns the problems between fields that are each valid.
func (s BudgetSpec) conflicts() []string {
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	switch s.Kind {
	case NoBudget:
	case RefundBudget:
		if s.Cost > s.Max {
			bad("cost: %s is above max %s: no retry could ever be paid: lower cost or raise max", decimal.Format(s.Cost), decimal.Format(s.Max))
		}
		if s.Throttled > s.Max {
			bad("throttled: %s is above max %s: no such retry could ever be paid: lower throttled or raise max", decimal.Format(s.Throttled), decimal.Format(s.Max))
		}
		if s.Credit > s.Max {
			bad("credit: %s is above max %s", decimal.Format(s.Credit), decimal.Format(s.Max))
		}
	case RatioBudget:
		if s.Ratio > 1 {
			bad("ratio: %s is above 1: a call has one retry in flight at most", decimal.Format(s.Ratio))
		}
	case BucketBudget:
		if s.Max <= 2 {
			bad("max: %s is not above 2: the first failure would stop all retries", decimal.Format(s.Max))
		}
		if s.Ratio > s.Max {
			bad("ratio: %s is above max %s", decimal.Format(s.Ratio), decimal.Format(s.Max))
		}
	}
	return problems
}

// budgetField is one number of a spec.
type budgetField struct {
	name     string
	value    float64
	used     bool // the spec's kind uses the number
	optional bool // 0 is allowed, and omitted from the text form
}

// fields lists the numbers in the order of the text form.
func (s BudgetSpec) fields() [5]budgetField {
	refund, bucket := s.Kind == RefundBudget, s.Kind == BucketBudget
	return [...]budgetField{
		{"cost", s.Cost, refund, false},
		{"credit", s.Credit, refund, false},
		{"max", s.Max, refund || bucket, false},
		{"ratio", s.Ratio, bucket || s.Kind == RatioBudget, false},
		{"throttled", s.Throttled, refund, true},
	}
}

// maxTokens limits every number, so that sums of millionths fit into an int64.
const maxTokens = 1e9

// problem returns why the value is not allowed; empty if it is.
func (f budgetField) problem(k BudgetKind) string {
	switch v := f.value; {
	case !f.used && v != 0:
		return fmt.Sprintf("must be 0: a %v budget does not use it", k)
	case !f.used || f.optional && v == 0:
		return ""
	case math.IsNaN(v):
		return "is not a number"
	case v <= 0:
		return fmt.Sprintf("%v is not above zero", v)
	case v > maxTokens:
		return fmt.Sprintf("%v is above %g", v, maxTokens)
	case float64(micros(v))/unit != v:
		return fmt.Sprintf("%v is finer than a millionth", v)
	}
	return ""
}

// unit is one token. Tokens are counted in whole millionths, so that a million
// credits of a tenth are exactly a hundred thousand tokens.
const unit = 1_000_000

func micros(tokens float64) int64 { return int64(math.Round(tokens * unit)) }
