// Package commandtest builds the tideover command for tests as users run it, without the
// race detector.
package commandtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Variable is the environment variable with the path of the command that tests start. If
// it is not set, Path builds the command as `make build` does.
const Variable = "TIDEOVER_TEST_COMMAND"

var built = sync.OnceValues(build)

// Path returns the path of the command. Its first call in a process builds it, if necessary.
func Path(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func build() (string, error) {
	if path := os.Getenv(Variable); path != "" {
		return path, nil
	}
	//nolint:noctx // go list ends by itself
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/tideover/tideover/cmd/tideover").Output()
	if err != nil {
		return "", fmt.Errorf("find the source of the command: %w", err)
	}
	source := strings.TrimSpace(string(out))
	path := filepath.Join(filepath.Dir(filepath.Dir(source)), "bin", "tideover")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	//nolint:noctx // go build ends by itself
	if text, err := exec.Command("go", "build", "-C", source, "-o", path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the command: %w\n%s", err, text)
	}
	return path, nil
}
