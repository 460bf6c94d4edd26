package examples_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testfile"
)

// TestPrograms runs the programs of this module against a gateway, in front of
// providers that fail on purpose.
func TestPrograms(t *testing.T) {
	bin := t.TempDir()
	tideover := command(t)
	up := started(t, nil, tideover, "chaos", "--quiet", "*: 503(retry-after-ms=20),529,200 cycle")
	gateway := startGateway(t, tideover, strings.ReplaceAll(`version: 1
policies: {quick: "exponential(10ms..1s) jitter=full attempts=6"}
providers:
  up: {base-url: "UP", policy: quick}
  openai: {base-url: "UP", auth: "${env:KEY}", policy: quick}
  anthropic: {base-url: "UP", auth: "${env:KEY}", policy: quick}
`, "UP", strings.TrimSuffix(up, "/")))
	for _, tt := range []struct {
		program, env string
		want         []string
	}{
		{"httpclient", "URL=" + up, []string{"200 OK true"}},
		{"httpclient", "URL=" + gateway + "/p/up/hello", []string{"200 OK true"}},
		{"openai", "GATEWAY=" + gateway, []string{"answer: ", "hello", "stream: "}},
		{"anthropic", "GATEWAY=" + gateway, []string{"answer: ", "hello", "stream: "}},
	} {
		t.Run(tt.program, func(t *testing.T) {
			program := filepath.Join(bin, tt.program)
			build(t, program, "./"+tt.program)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, program)
			cmd.Env = append(os.Environ(), tt.env)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, want := range tt.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("printed %q, want %q", out, want)
				}
			}
		})
	}
}

// startGateway starts a gateway with the configuration, and returns its address. KEY is
// in its environment.
func startGateway(t *testing.T, tideover, config string) string {
	t.Helper()
	dir := testfile.ShortDir(t)
	file := filepath.Join(dir, "tideover.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	address := started(t, []string{"KEY=a-key-of-the-gateway"}, tideover, "gateway", "--config", file, "--data", dir, "--listen", "127.0.0.1:0")
	gateway, _, _ := strings.Cut(address, "/p/")
	return gateway
}

var (
	commandDir   string // of the command that tests start
	buildCommand sync.Once
)

func TestMain(m *testing.M) {
	var err error
	if commandDir, err = os.MkdirTemp("", "examples"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(commandDir)
	os.Exit(code)
}

// command returns the path of the command, which is built once.
func command(t *testing.T) string {
	t.Helper()
	path := filepath.Join(commandDir, "tideover")
	buildCommand.Do(func() { build(t, path, "../cmd/tideover") })
	return path
}

func build(t *testing.T, to, pkg string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", to, pkg).CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
}

// started starts a server, and returns the first address that it prints.
func started(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, address, ok := strings.Cut(lines.Text(), "http://"); ok {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return "http://" + strings.Fields(address)[0]
		}
	}
	t.Fatalf("%s %v printed no address", name, args)
	return ""
}
