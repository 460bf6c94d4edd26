package retry

import (
	"testing"
	"time"
)

func TestHedgeRuleSpendsItsShare(t *testing.T) {
	r, err := NewHedgeRule(Hedge{After: 20 * time.Millisecond, Share: 0.25})
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for range hedgeBurst + 100 {
		if r.Take() {
			taken++
		}
	}
	if taken != hedgeBurst {
		t.Errorf("%d hedges in a row at the start, want %d", taken, hedgeBurst)
	}
	for range 8 {
		if after, ok := r.Begin(); after != 20*time.Millisecond || !ok {
			t.Errorf("Begin = %v, %v", after, ok)
		}
	}
	taken = 0
	for range 10 {
		if r.Take() {
			taken++
		}
	}
	if taken != 2 {
		t.Errorf("eight attempts earn %d hedges of a share of 25 %%, want 2", taken)
	}
}

func TestHedgeRuleLearnsThePercentile(t *testing.T) {
	r, err := NewHedgeRule(Hedge{Percentile: 90})
	if err != nil {
		t.Fatal(err)
	}
	if after, ok := r.Begin(); ok {
		t.Errorf("knows the percentile of nothing: %v", after)
	}
	for i := range 320 {
		r.Answered(time.Duration(i%100+1) * time.Millisecond)
	}
	after, ok := r.Begin()
	if want := 90 * time.Millisecond; !ok || after < want*9/10 || after > want*11/10 {
		t.Errorf("Begin = %v, %v, want about %v", after, ok, want)
	}
}

func TestHedgeRuleOfNothing(t *testing.T) {
	for _, h := range []Hedge{{}, {After: -1}, {Percentile: 100}} {
		if r, err := NewHedgeRule(h); r != nil || err == nil {
			t.Errorf("NewHedgeRule(%+v) = %v, %v, want an error", h, r, err)
		}
	}
}
