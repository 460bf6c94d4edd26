//go:build unix

package clitest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// commandVar is the environment variable with the path of the command that tests start. If it is
// not set, commandPath builds the command as `make build` does, without the race detector.
const commandVar = "TIDEOVER_TEST_COMMAND"

var builtCommand = sync.OnceValues(buildCommand)

// CommandPath returns the path of the tideover command. Its first call in a process builds the
// command, if necessary. With -short, which is for tests that start no command, it skips the test.
func CommandPath(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("with -short, no command is started")
	}
	path, err := builtCommand()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func buildCommand() (string, error) {
	if path := os.Getenv(commandVar); path != "" {
		return path, nil
	}
	//nolint:noctx // go list ends by itself
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/tideover/tideover/cmd/tideover").Output()
	if err != nil {
		return "", fmt.Errorf("find the source of the command: %w", err)
	}
	source := strings.TrimSpace(string(out))
	path := filepath.Join(filepath.Dir(filepath.Dir(source)), "bin", "tideover")
	//nolint:noctx // go build ends by itself
	if text, err := exec.Command("go", "build", "-C", source, "-o", path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the command: %w\n%s", err, text)
	}
	return path, nil
}
