package validate

import (
	"errors"
	"io"
	"testing"
	"time"
)

func TestProblems(t *testing.T) {
	var p Problems
	p.Check(true, "no problem")
	p.Check(false, "queue: %d is odd", 3)
	p.Field("probe", nil)
	p.Field("probe", io.EOF)
	NotNegative(&p, "failures", 0)
	NotNegative(&p, "failures", -1)
	NotNegative(&p, "release", -time.Second)
	err := errors.Join(p...)
	want := "queue: 3 is odd\nprobe: EOF\nfailures: -1 is negative\nrelease: -1s is negative"
	if err.Error() != want || !errors.Is(err, io.EOF) {
		t.Errorf("problems %q, want %q", err, want)
	}
}

func TestNoProblemsAreNoError(t *testing.T) {
	var p Problems
	if err := errors.Join(p...); err != nil {
		t.Errorf("no problems: error %v, want nil", err)
	}
}
