package doctor

import (
	"path/filepath"
	"runtime"
	"testing"
)

func TestFree(t *testing.T) {
	t.Parallel()
	n, err := Free(t.TempDir())
	if says := runtime.GOOS == "linux"; says != (err == nil) || says != (n > 0) {
		t.Errorf("Free() = %d, %v", n, err)
	}
	if _, err := Free(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("Free() of a folder that is not there has no error")
	}
}
