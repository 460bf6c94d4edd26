package limit

import (
	"context"
	"strings"
	"testing"
)

func TestPriorityNamesReadBack(t *testing.T) {
	t.Parallel()
	for p := Lowest; p <= Highest; p++ {
		got, err := ParsePriority(p.String())
		if err != nil || got != p {
			t.Errorf("ParsePriority(%q) = %v, %v, want %v", p.String(), got, err, p)
		}
		if err := p.Validate(); err != nil {
			t.Errorf("%v.Validate() = %v, want nil", p, err)
		}
	}
}

func TestPriorityErrorsQuoteTheWord(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "urgent", "High", " low"} {
		_, err := ParsePriority(s)
		if err == nil || !strings.Contains(err.Error(), `priority "`+s+`"`) {
			t.Errorf("ParsePriority(%q) error = %v, want one that quotes the word", s, err)
		}
	}
}

func TestPriorityBeyondTheEndsIsInvalidButHasAClass(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		p     Priority
		class int
		name  string
	}{
		{Lowest - 1, 0, "priority(-3)"},
		{Highest + 1, Classes - 1, "priority(3)"},
		{-128, 0, "priority(-128)"},
		{127, Classes - 1, "priority(127)"},
	} {
		if err := tt.p.Validate(); err == nil {
			t.Errorf("Priority(%d).Validate() = nil, want an error", int8(tt.p))
		}
		if got := tt.p.Class(); got != tt.class {
			t.Errorf("Priority(%d).Class() = %d, want %d", int8(tt.p), got, tt.class)
		}
		if got := tt.p.String(); got != tt.name {
			t.Errorf("Priority(%d).String() = %q, want %q", int8(tt.p), got, tt.name)
		}
	}
}

func TestPriorityTravelsInTheContext(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	if got := PriorityFrom(ctx); got != Normal {
		t.Errorf("PriorityFrom(background) = %v, want normal", got)
	}
	inner := WithPriority(WithPriority(ctx, Low), High)
	if got := PriorityFrom(inner); got != High {
		t.Errorf("PriorityFrom(low, then high) = %v, want the innermost, high", got)
	}
}
