package limit

import (
	"math"
	"strings"
	"testing"
)

func TestBudgetSpecText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		spec BudgetSpec
		text string
	}{
		{BudgetSpec{}, "none"},
		{Refund(1, 0.1, 10), "refund(1,0.1,10)"},
		{Refund(14, 1, 500), "refund(14,1,500)"},
		{Refund(0.000001, 0.000001, 1e9), "refund(0.000001,0.000001,1000000000)"},
		{ProviderBudget(), "refund(14,1,500,5)"},
		{Ratio(0.2), "ratio(0.2)"},
		{Ratio(1), "ratio(1)"},
		{Bucket(100, 0.1), "bucket(100,0.1)"},
	} {
		if got := tt.spec.String(); got != tt.text {
			t.Errorf("%#v.String() = %q, want %q", tt.spec, got, tt.text)
		}
		got, err := ParseBudget(tt.text)
		if err != nil || got != tt.spec {
			t.Errorf("ParseBudget(%q) = %v, %v, want %v", tt.text, got, err, tt.spec)
		}
	}
}

func TestParseBudgetAcceptsOtherSpellingsOfNumbers(t *testing.T) {
	t.Parallel()
	got, err := ParseBudget("refund(1.0,.1,010)")
	if want := Refund(1, 0.1, 10); err != nil || got != want {
		t.Errorf("ParseBudget = %v, %v, want %v", got, err, want)
	}
}

func TestParseBudgetErrorsQuoteTheWordAndSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{"", "want none"},
		{"refund", "want none"},
		{"refund(1,0.1,10", "want none"},
		{"refund(1,0.1)", "want none"},
		{"refund(1, 0.1, 10)", "want none"},
		{"ratio(-0.2)", "want none"},
		{"ratio(NaN)", "want none"},
		{"ratio(1e-1)", "want none"},
		{"ratio(0x1p-2)", "want none"},
		{"ratio(0.2))", "want none"},
		{"none()", "want none"},
		{"Ratio(0.2)", "want none"},
		{"ratio(0)", "ratio: 0 is not above zero"},
		{"ratio(1.5)", "ratio: 1.5 is above 1"},
		{"refund(20,0.1,10)", "cost: 20 is above max 10"},
		{"refund(0,0,10)", "cost: 0 is not above zero; credit: 0 is not above zero"},
		{"refund(1,0.1,10,11)", "throttled: 11 is above max 10"},
		{"refund(1,0.1,10,0)", "want none"},
		{"refund(1,0.1,10,5,5)", "want none"},
		{"bucket(2,0.1)", "max: 2 is not above 2"},
	} {
		_, err := ParseBudget(tt.text)
		if err == nil || !strings.HasPrefix(err.Error(), `budget "`+tt.text+`": `) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ParseBudget(%q) error = %v, want the word and %q", tt.text, err, tt.want)
		}
	}
}

func TestBudgetSpecValidateNamesEveryProblem(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		spec BudgetSpec
		want []string
	}{
		{"an unknown kind", BudgetSpec{Kind: 9}, []string{"budget: kind: budget(9) is unknown"}},
		{"numbers without a budget", BudgetSpec{Cost: 1, Max: 2}, []string{"budget: cost: must be 0", "budget: max: must be 0"}},
		{"a field of another kind", BudgetSpec{Kind: RatioBudget, Ratio: 0.1, Cost: 1}, []string{"budget: cost: must be 0: a ratio budget"}},
		{"not a number", Ratio(math.NaN()), []string{"budget: ratio: is not a number"}},
		{"not a number where none belongs", BudgetSpec{Cost: math.NaN()}, []string{"budget: cost: must be 0"}},
		{"infinite", Refund(1, 1, math.Inf(1)), []string{"budget: max: +Inf is above 1e+09"}},
		{"negative", Refund(-1, -2, 10), []string{"budget: cost: -1 is", "budget: credit: -2 is"}},
		{"finer than the tokens", Refund(1, 1.0/3, 10), []string{"budget: credit: 0.3333333333333333 is finer"}},
		{"credit above the ceiling", Refund(1, 20, 10), []string{"budget: credit: 20 is above max 10"}},
		{"a ratio above one", Ratio(2), []string{"budget: ratio: 2 is above 1"}},
		{"a bucket that never grants", Bucket(1, 2), []string{"budget: max: 1 is not above 2", "budget: ratio: 2 is above max 1"}},
	} {
		err := tt.spec.Validate()
		if err == nil {
			t.Errorf("%s: Validate() = nil, want %q", tt.name, tt.want)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != len(tt.want) {
			t.Errorf("%s: Validate() = %q, want %d problems", tt.name, lines, len(tt.want))
			continue
		}
		for i, want := range tt.want {
			if !strings.HasPrefix(lines[i], want) {
				t.Errorf("%s: problem %d = %q, want %q", tt.name, i, lines[i], want)
			}
		}
	}
}

func TestNewBudgetRefusesAnInvalidSpec(t *testing.T) {
	t.Parallel()
	if b, err := NewBudget(Ratio(2)); err == nil || b != nil {
		t.Errorf("NewBudget(ratio(2)) = %v, %v, want an error", b, err)
	}
}

func FuzzParseBudget(f *testing.F) {
	for _, s := range []string{"none", "refund(1,0.1,10)", "ratio(0.2)", "bucket(100,0.1)", "refund(14,1,500)", "ratio(.1)", "x(", "ratio(1,)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		spec, err := ParseBudget(s)
		if err != nil {
			if !strings.Contains(err.Error(), "budget") {
				t.Errorf("ParseBudget(%q) error = %v, want it to name the budget", s, err)
			}
			return
		}
		if err := spec.Validate(); err != nil {
			t.Errorf("ParseBudget(%q) = %v, which is invalid: %v", s, spec, err)
		}
		if again, err := ParseBudget(spec.String()); err != nil || again != spec {
			t.Errorf("ParseBudget(%q) = %v, %v, want %v", spec.String(), again, err, spec)
		}
	})
}
