// Package sdk_test runs the SDKs of OpenAI, Anthropic and Google, for Go and from npm,
// through the gateway against an upstream that fails, and counts the requests there.
//
// The SDKs have the settings that they have by themselves, retries included.
package sdk_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
)

// testCase is one call of one SDK, and the fault that its first request meets.
type testCase struct {
	Client string // "go" or "npm"
	API    string // "openai", "anthropic" or "google"
	Call   string // "plain", "stream", "tools", "upload" or "responses"
	Fault  string // "none", "busy", "throttled", "reset", "cut" or "cut-stream"
}

// ID returns the text that names the test case in requests and results.
func (c testCase) ID() string { return strings.Join([]string{c.Client, c.API, c.Call, c.Fault}, "/") }

// parseCase returns the test case that the ID names, or none.
func parseCase(id string) (c testCase) {
	if part := strings.Split(id, "/"); len(part) == 4 {
		c = testCase{part[0], part[1], part[2], part[3]}
	}
	return c
}

// testCases returns the test cases of one client.
func testCases(client string) (cases []testCase) {
	for _, api := range []string{"openai", "anthropic", "google"} {
		calls := []string{"plain", "stream", "tools", "upload"}
		if api == "openai" {
			calls = append(calls, "responses")
		}
		for _, call := range calls {
			faults := []string{"none", "busy", "throttled", "reset", "cut"}
			if call == "stream" {
				faults[4] = "cut-stream"
			}
			for _, fault := range faults {
				cases = append(cases, testCase{client, api, call, fault})
			}
		}
	}
	return cases
}

// result is what a call returned.
type result struct {
	ID    string `json:"id"`
	Text  string `json:"text"`  // of the model; of an upload, the size of the file
	Error string `json:"error"` // "" if the call succeeded
}

// TestSDKs makes every call with every fault. A request that was refused is sent again; one
// that may have been done, because its answer never came or was cut, is sent once.
func TestSDKs(t *testing.T) {
	up := startUpstream(t)
	gateway := startGateway(t, up.url)
	t.Run("go", func(t *testing.T) {
		t.Parallel()
		var results sync.Map
		var calls sync.WaitGroup
		for _, c := range testCases("go") {
			calls.Go(func() {
				r := result{ID: c.ID()}
				var err error
				if r.Text, err = callGoSDK(testwait.Context(t), gateway, c); err != nil {
					r.Error = err.Error()
				}
				results.Store(r.ID, r)
			})
		}
		calls.Wait()
		check(t, up, "go", func(id string) (result, bool) {
			r, ok := results.Load(id)
			return r.(result), ok
		})
	})
	t.Run("npm", func(t *testing.T) {
		t.Parallel()
		results := callNPMSDKs(t, gateway)
		check(t, up, "npm", func(id string) (result, bool) { r, ok := results[id]; return r, ok })
	})
}

// check compares results and hits with what the test case should come to.
func check(t *testing.T, up *upstream, client string, find func(id string) (result, bool)) {
	t.Helper()
	for _, c := range testCases(client) {
		t.Run(strings.Join([]string{c.API, c.Call, c.Fault}, "/"), func(t *testing.T) {
			got, ok := find(c.ID())
			if !ok {
				t.Fatal("the call has no result")
			}
			hits, fails := 1, true
			switch c.Fault {
			case "none":
				fails = false
			case "busy", "throttled":
				hits, fails = 2, false
			}
			if !fails && (c.Call == "tools" || c.Call == "upload" && c.API == "google") {
				hits++ // a call of two requests
			}
			want := answerText
			if c.Call == "upload" {
				want = fmt.Sprint(len(uploadedFile))
			}
			seen := up.record(c.ID())
			for _, problem := range seen.problems {
				t.Errorf("upstream: %s", problem)
			}
			if seen.hits != hits {
				t.Errorf("%d requests reached the upstream, want %d; the call returned %+v", seen.hits, hits, got)
			}
			switch {
			case fails && got.Error == "":
				t.Errorf("returned %q, want an error", got.Text)
			case c.Fault == "cut-stream" && !strings.HasPrefix(answerText, got.Text):
				t.Errorf("the stream began with %q, want the beginning of %q", got.Text, answerText)
			case !fails && (got.Error != "" || got.Text != want):
				t.Errorf("returned %q and the error %q, want %q", got.Text, got.Error, want)
			}
		})
	}
}

// callNPMSDKs makes the calls with the SDKs from npm, in one process of node.
func callNPMSDKs(t *testing.T, gateway string) map[string]result {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("the SDKs from npm need node, which is not installed")
	}
	if _, err := os.Stat("node_modules"); err != nil {
		t.Skip("the SDKs from npm are not installed: run scripts/test-tools.sh")
	}
	type call struct {
		ID   string `json:"id"`
		API  string `json:"api"`
		Call string `json:"call"`
	}
	var calls []call
	for _, c := range testCases("npm") {
		calls = append(calls, call{c.ID(), c.API, c.Call})
	}
	input, err := json.Marshal(map[string]any{
		"gateway": gateway, "header": caseHeader, "file": string(uploadedFile), "toolResult": toolResult, "calls": calls,
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(testwait.Context(t), "node", "clients.mjs")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("node clients.mjs: %v\n%s", err, errs.Bytes())
	}
	results := map[string]result{}
	for decoder := json.NewDecoder(&out); ; {
		var r result
		if err := decoder.Decode(&r); err == io.EOF {
			return results
		} else if err != nil {
			t.Fatalf("node clients.mjs: %v\n%s", err, errs.Bytes())
		}
		results[r.ID] = r
	}
}

// startGateway starts the gateway as users do, and returns its address.
func startGateway(t *testing.T, upstream string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sdk") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	// The breakers stay closed: the test cases fail on purpose, and share the providers.
	config := strings.NewReplacer("UPSTREAM", upstream).Replace(`version: 1
providers:
  openai: {base-url: "UPSTREAM", auth: "${env:KEY}", breaker: {consecutive: 1000, failures: 100%}}
  anthropic: {base-url: "UPSTREAM", auth: "${env:KEY}", breaker: {consecutive: 1000, failures: 100%}}
  gemini: {base-url: "UPSTREAM", auth: "${env:KEY}", breaker: {consecutive: 1000, failures: 100%}}
`)
	path := filepath.Join(dir, "tideover.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(command(t, dir), "gateway", "--config", path, "--data", dir, "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "KEY="+gatewayKey)
	var logged bytes.Buffer
	cmd.Stderr = &logged
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
		if t.Failed() && testing.Verbose() {
			t.Logf("the gateway logged:\n%s", logged.Bytes())
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, address, ok := strings.Cut(lines.Text(), "http://"); ok {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			host, _, _ := strings.Cut(address, "/")
			return "http://" + host
		}
	}
	t.Fatal("the gateway printed no address")
	return ""
}

// command returns the path of the command: that of TIDEOVER_TEST_COMMAND, or one that is
// built into the folder.
func command(t *testing.T, dir string) string {
	t.Helper()
	if path := os.Getenv("TIDEOVER_TEST_COMMAND"); path != "" {
		return path
	}
	path := filepath.Join(dir, "tideover")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../../cmd/tideover", "-o", path)
	build.Env = append(os.Environ(), "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the command: %v\n%s", err, out)
	}
	return path
}
