package natstest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// Version is the version of the server. The go.mod in the folder server must require the
// same version.
const Version = "v2.15.2"

const module = "github.com/nats-io/nats-server/v2"

// Build returns the path of the server, and builds it if this machine does not
// have it yet.
func Build() (string, error) { return built() }

var built = sync.OnceValues(build)

func build() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "tideover")
	path := filepath.Join(dir, fmt.Sprintf("nats-server-%s-%s", Version, runtime.Version()))
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// Tests of several packages run at the same time; only one of them builds.
	locked, err := os.OpenFile(filepath.Join(dir, "nats-server.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer locked.Close()
	if err := lock(locked); err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, compile(dir, path)
}

// compile builds into a temporary folder and renames the result, so that a
// killed process leaves no partial file.
func compile(dir, path string) error {
	source, err := sourceDir()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // files that are left do no harm
	out := filepath.Join(tmp, filepath.Base(path))
	//nolint:noctx // it has no context
	cmd := exec.Command("go", "build", "-C", source, "-ldflags=-s", "-o", out, module)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=readonly -buildvcs=false")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s %s: %w: %s", module, Version, err, bytes.TrimSpace(text))
	}
	return os.Rename(out, path)
}

// sourceDir returns the folder of the module that requires the server.
func sourceDir() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	dir := filepath.Join(filepath.Dir(file), "server")
	if !ok || !filepath.IsAbs(file) { // built with -trimpath
		//nolint:noctx // it has no context
		out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/tideover/tideover/engine/jetstream/natstest").Output()
		if err != nil {
			return "", fmt.Errorf("find the source of natstest: %w", err)
		}
		dir = filepath.Join(strings.TrimSpace(string(out)), "server")
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return "", errors.New("the module natstest/server is not there: test in a clone of the repository")
	}
	return dir, nil
}
