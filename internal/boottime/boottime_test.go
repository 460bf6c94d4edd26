package boottime_test

import (
	"runtime"
	"testing"

	"github.com/tideover/tideover/internal/boottime"
)

// The time only grows, and the boot stays the same.
func TestElapsedGrows(t *testing.T) {
	first, boot := boottime.Elapsed()
	second, same := boottime.Elapsed()
	if second < first || boot != same || runtime.GOOS == "linux" && (first <= 0 || boot == "") {
		t.Errorf("Elapsed() = %v of %q, then %v of %q", first, boot, second, same)
	}
}
