package examples_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPrograms runs the programs of this module as their readers would: against a
// gateway, before providers that fail on purpose.
func TestPrograms(t *testing.T) {
	bin := t.TempDir()
	build(t, filepath.Join(bin, "tideover"), "../cmd/tideover")
	tideover := filepath.Join(bin, "tideover")
	up := started(t, nil, tideover, "chaos", "--quiet", "*: 503(retry-after-ms=20),529,200 cycle")
	dir, err := os.MkdirTemp("", "ex") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := filepath.Join(dir, "tideover.yaml")
	text := strings.ReplaceAll(`version: 1
policies: {quick: "exponential(10ms..1s) jitter=full attempts=6"}
providers:
  up: {base-url: "UP", policy: quick}
  openai: {base-url: "UP", auth: "${env:KEY}", policy: quick}
  anthropic: {base-url: "UP", auth: "${env:KEY}", policy: quick}
`, "UP", strings.TrimSuffix(up, "/"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address := started(t, []string{"KEY=a-key-of-the-gateway"}, tideover, "gateway", "--config", config, "--data", dir, "--listen", "127.0.0.1:0")
	gateway, _, _ := strings.Cut(address, "/p/")
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
