package retryhttp_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var withStandardProxy = flag.Bool("stdproxy", false, "build and run the standard library's tests of its ReverseProxy")

// TestG16StandardReverseProxyTestsPass runs the tests of the standard library
// for its ReverseProxy, with and without our transport as the default transport.
// Upgrades, trailers, hop-by-hop headers, 100-continue, informational answers and
// clients that disconnect must behave the same.
//
// The sources are those of the installed Go, copied at test time with their
// internal packages into a module of their own.
func TestG16StandardReverseProxyTestsPass(t *testing.T) {
	if !*withStandardProxy {
		return // it builds a package, and the tests in it depend on the speed of the machine: run it with -stdproxy
	}
	goroot := goEnv(t, "GOROOT")
	std := stdCopy{t: t, src: filepath.Join(goroot, "src"), dir: t.TempDir(), done: map[string]bool{}}
	std.source(filepath.Join("net", "http", "httputil"), ".", "reverseproxy_test.go")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	std.write("go.mod", fmt.Sprintf("module %s\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %[2]s => %q\n", stdModule, ourModule, filepath.Dir(here)))
	std.write("ours_test.go", stdOurs)
	std.write("inner/godebug/godebug.go", stdGodebug)

	binary := filepath.Join(std.dir, "proxy.test")
	std.run(nil, "go", "test", "-c", "-o", binary, ".")
	without, _ := std.results(binary)
	with, sent := std.results(binary, "TIDEOVER_PROXY=1")
	if sent == 0 {
		t.Error("our transport was not asked")
	}
	if len(without) < 40 {
		t.Errorf("only %d tests ran: %v", len(without), slices.Sorted(maps.Keys(without)))
	}
	count := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(without)) {
		count[without[name]]++
		if with[name] != without[name] {
			t.Errorf("%s: %s with our transport, %s without", name, with[name], without[name])
		}
	}
	for name, result := range with {
		if without[name] == "" {
			t.Errorf("%s: %s with our transport, did not run without", name, result)
		}
	}
	t.Logf("%s: %v with and without, %d requests through our transport", goEnv(t, "GOVERSION"), count, sent)
}

const (
	ourModule = "github.com/tideover/tideover"
	stdModule = "stdproxy"

	// stdOurs makes our transport the default, and counts its requests.
	stdOurs = `package httputil

import (
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"testing"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

var sent atomic.Int64

type counting struct{ *retryhttp.Transport }

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	sent.Add(1)
	return c.Transport.RoundTrip(r)
}

func init() {
	if os.Getenv("TIDEOVER_PROXY") == "" {
		return
	}
	policy, err := retry.Parse("http base=1ms attempts=3")
	if err != nil {
		panic(err)
	}
	t, err := retryhttp.New(policy, http.DefaultTransport.(*http.Transport).Clone())
	if err != nil {
		panic(err)
	}
	http.DefaultTransport = counting{t}
}

func TestMain(m *testing.M) {
	code := m.Run()
	fmt.Println("sent", sent.Load())
	os.Exit(code)
}
`

	// stdGodebug replaces the package of runtime settings, which can't be
	// copied. It sets nothing.
	stdGodebug = `package godebug

type Setting struct{}

func New(string) *Setting { return new(Setting) }

func (*Setting) Value() string { return "" }

func (*Setting) IncNonDefault() {}
`
)

// goEnv returns a setting of the go command, and skips the test if there is no go command.
func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Skipf("it needs the go command: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// stdCopy copies packages of the standard library into a module.
type stdCopy struct {
	t        *testing.T
	src, dir string
	done     map[string]bool
}

// source copies a package to another path, with the internal packages that it imports.
// It copies only the named tests.
func (s *stdCopy) source(from, to string, tests ...string) {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.src, from, "*.go"))
	if err != nil || len(files) == 0 {
		s.t.Skipf("it needs the sources of the standard library: %s is not there", filepath.Join(s.src, from))
	}
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasSuffix(name, "_test.go") && !slices.Contains(tests, name) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			s.t.Fatal(err)
		}
		s.write(filepath.Join(to, name), string(s.rewrite(file, text)))
	}
}

// rewrite changes the imports of a file to our copies, and makes those copies.
func (s *stdCopy) rewrite(file string, text []byte) []byte {
	s.t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ImportsOnly)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, i := range parsed.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		vendored := strings.HasPrefix(path, "golang.org/x/")
		if !vendored && !slices.Contains(strings.Split(path, "/"), "internal") {
			continue
		}
		to := strings.ReplaceAll(path, "internal", "inner") // a name that any package may import
		text = bytes.ReplaceAll(text, []byte(i.Path.Value), []byte(strconv.Quote(stdModule+"/"+to)))
		if s.done[path] || path == "internal/godebug" {
			continue
		}
		s.done[path] = true
		from := filepath.FromSlash(path)
		if vendored {
			from = filepath.Join("vendor", from)
		}
		s.source(from, filepath.FromSlash(to))
	}
	return text
}

func (s *stdCopy) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// run runs a command in the module, without a network. It fails the test if a command
// fails, except for the copied tests.
func (s *stdCopy) run(env []string, name string, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), name, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off", "GOTOOLCHAIN=local", "PWD="+s.dir)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil && name == "go" {
		s.t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

var (
	stdResult = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): (\S+)`)
	stdSent   = regexp.MustCompile(`(?m)^sent (\d+)$`)
)

// results runs the copied tests and returns the result of each, and how many requests
// used our transport.
func (s *stdCopy) results(binary string, env ...string) (results map[string]string, sent int) {
	s.t.Helper()
	out := s.run(env, binary, "-test.v", "-test.timeout=2m")
	results = map[string]string{}
	for _, m := range stdResult.FindAllStringSubmatch(out, -1) {
		results[m[2]] = m[1]
	}
	m := stdSent.FindStringSubmatch(out)
	if m == nil {
		s.t.Fatalf("the tests did not end:\n%s", out)
	}
	sent, _ = strconv.Atoi(m[1])
	if slices.Contains(slices.Collect(maps.Values(results)), "FAIL") {
		s.t.Logf("%v:\n%s", env, out)
	}
	return results, sent
}
