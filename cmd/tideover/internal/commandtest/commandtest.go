// Package commandtest gives tests the command as users run it: built without the race
// detector, once for all packages.
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

// Variable names the command that the tests start. If it is not set, they build the
// command as `make build` does.
const Variable = "TIDEOVER_TEST_COMMAND"

var built = sync.OnceValues(build)

// Path returns the path of the command.
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
	//nolint:noctx // it ends by itself
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/tideover/tideover/cmd/tideover").Output()
	if err != nil {
		return "", fmt.Errorf("find the source of the command: %w", err)
	}
	source := strings.TrimSpace(string(out))
	path := filepath.Join(filepath.Dir(filepath.Dir(source)), "bin", "tideover")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	//nolint:noctx // it ends by itself
	if text, err := exec.Command("go", "build", "-C", source, "-o", path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the command: %w\n%s", err, text)
	}
	return path, nil
}
