//go:build unix

package gateway_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/chaos"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
)

// chaosProcess is a running `tideover chaos`.
type chaosProcess struct {
	*clitest.Background
	out *clitest.SyncBuffer
	url string
}

// startChaos starts `tideover chaos` and waits for its URL.
func startChaos(t *testing.T, args ...string) *chaosProcess {
	t.Helper()
	c := &chaosProcess{Background: &clitest.Background{T: t, Folder: t.TempDir()}, out: new(clitest.SyncBuffer)}
	c.Cmd, c.Mark = clitest.Command(t, append([]string{"chaos"}, args...)...)
	c.Stdout, c.Stderr = c.out, &c.Errors
	c.Begin()
	testwait.Until(t, "the URL is printed", func() bool { return strings.Contains(c.out.String(), "\n") })
	c.url, _, _ = strings.Cut(c.out.String(), "\n")
	return c
}

// get sends a request and returns the status; 0 if there was no response.
func (c *chaosProcess) get(path string) int {
	c.T.Helper()
	resp, err := http.Get(c.url + path)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// stop ends the process with SIGINT and returns its output.
func (c *chaosProcess) stop() string {
	c.T.Helper()
	c.Signal(syscall.SIGINT)
	clitest.WantCode(c.T, c.End(), 0)
	return c.out.String()
}

func TestChaos(t *testing.T) {
	t.Parallel()
	c := startChaos(t, "/v1/messages: 429(retry-after=2),200; /b: fail")
	for _, want := range []struct {
		path   string
		status int
	}{{"/v1/messages?key=hunter2", 429}, {"/v1/messages", 200}, {"/%1b[31m/a%E2%80%AE", 404}} {
		if got := c.get(want.path); got != want.status {
			t.Errorf("GET %q = %d, want %d", want.path, got, want.status)
		}
	}
	if got := c.get("/b"); got < 500 {
		t.Errorf("GET /b = %d", got)
	}
	out := c.stop()
	for _, part := range []string{
		"http://127.0.0.1:", "     1  GET /v1/messages  429(retry-after=2)  rule 1\n", "     2  GET /v1/messages  200  rule 1\n", "  fail (50", "  unmatched\n",
		"4 requests in ", "at most 1 at once, on ", "\nRULE          REQUESTS  ANSWERS\n/v1/messages  2         200 × 1, 429(retry-after=2) × 1\n", "/b            1         fail × 1", "(none)        1         404",
	} {
		clitest.WantIn(t, "stdout", out, part)
	}
	if strings.ContainsAny(out, "\x1b\u202e") || strings.Contains(out, "hunter2") {
		t.Errorf("stdout = %q", out)
	}
	if c.Errors.Len() > 0 {
		t.Errorf("stderr = %q", c.Errors.String())
	}
}

func TestChaosSaysThatItsCountsStartOver(t *testing.T) {
	t.Parallel()
	c := startChaos(t, "503,200")
	c.get("/a")
	resp, err := http.Post(c.url+"/_chaos/spec", "text/plain", strings.NewReader("404"))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("POST spec: %+v, %v", resp, err)
	}
	resp.Body.Close()
	if got := c.get("/b"); got != 404 {
		t.Errorf("GET /b = %d with the new rules", got)
	}
	out := c.stop()
	for _, pattern := range []string{
		`(?m)^ +[0-9.]+s     1  GET /a  503\nthe rules were set again: times and numbers start over\n +[0-9.]+s     1  GET /b  404$`,
		`(?m)^1 request in \S+ since the rules were set again, at most 1 at once`,
	} {
		if !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("chaos printed\n%s\nwant %s", out, pattern)
		}
	}
}

func TestChaosAsJSON(t *testing.T) {
	t.Parallel()
	c := startChaos(t, "--json", "--seed", "7", "503,200")
	var first struct{ URL, Control, Spec string }
	if err := json.Unmarshal([]byte(c.url), &first); err != nil || first.Control != first.URL+"/_chaos/" || first.Spec != "seed=7; *: 503,200" {
		t.Fatalf("the first line is %s: %v", c.url, err)
	}
	c.url = first.URL
	if c.get("/a") != 503 || c.get("/b") != 200 {
		t.Error("the script is not played")
	}
	lines := strings.Split(strings.TrimSpace(c.stop()), "\n")
	var arrival chaos.Arrival
	var last struct{ Summary chaos.Stats }
	if len(lines) != 4 || json.Unmarshal([]byte(lines[2]), &arrival) != nil || json.Unmarshal([]byte(lines[3]), &last) != nil {
		t.Fatalf("printed %q", lines)
	}
	if arrival.Path != "/b" || arrival.Status != 200 || arrival.Number != 2 || last.Summary.Requests != 2 || last.Summary.Answers["503"] != 1 {
		t.Errorf("arrival %+v, summary %+v", arrival, last.Summary)
	}
}

func TestChaosQuietly(t *testing.T) {
	t.Parallel()
	c := startChaos(t, "--quiet")
	if c.get("/a") != 200 {
		t.Error("without a spec it does not answer")
	}
	resp, err := http.Post(c.url+"/_chaos/spec", "text/plain", strings.NewReader("418"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := c.get("/a"); got != 418 {
		t.Errorf("after other rules: %d", got)
	}
	c.Signal(syscall.SIGTERM)
	clitest.WantCode(t, c.End(), 0)
	lines := strings.Split(c.out.String(), "\n")
	if lines[0] != c.url || !strings.HasPrefix(lines[1], "1 request in ") {
		t.Errorf("stdout = %q", lines)
	}
}

func TestChaosOverTLS(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "chaos.pem")
	c := startChaos(t, "--tls", "--cert", file, "200")
	testwait.Until(t, "the certificate is there", func() bool { return clitest.CountLines(file) > 2 })
	text, _ := os.ReadFile(file)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(c.url)
	if err != nil || resp.StatusCode != 200 || resp.ProtoMajor != 2 || !strings.HasPrefix(c.url, "https://") {
		t.Fatalf("got %v, %v at %s", resp, err, c.url)
	}
	resp.Body.Close()
	c.stop()
}

func TestChaosOfFilesAndPresets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	clitest.WriteFile(t, dir+"/chaos.yaml", "rules: [{match: /b, script: 502}]\n")
	clitest.WriteFile(t, dir+"/chaos.txt", "/b: 504\n*: 200\n")
	for name, tt := range map[string]struct {
		args []string
		want map[string]int
	}{
		"a file of YAML":             {[]string{"--file", dir + "/chaos.yaml", "/a: 503"}, map[string]int{"/a": 503, "/b": 502, "/c": 404}},
		"a file of text":             {[]string{"-f", dir + "/chaos.txt", "/a: 503"}, map[string]int{"/a": 503, "/b": 504, "/c": 200}},
		"several arguments":          {[]string{"/a: 501", "/b: 502; /c: 503"}, map[string]int{"/a": 501, "/b": 502, "/c": 503}},
		"a preset, and rules before": {[]string{"--preset", "overload", "/a: 503"}, map[string]int{"/a": 503, "/b": 200}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startChaos(t, tt.args...)
			for path, want := range tt.want {
				if got := c.get(path); got != want {
					t.Errorf("GET %s = %d, want %d", path, got, want)
				}
			}
			c.stop()
		})
	}
}

// These command lines are rejected before a server starts.
func TestChaosRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	clitest.WriteFile(t, dir+"/bad.yaml", "rules: [{scrpt: 503}]\n")
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"a word that is none":         {[]string{"503,5O3"}, `chaos: rule 1 "503,5O3": "5O3" is no answer; want a status from 200 to 599, such as 503 or 429(retry-after=2), or one of hang, reset`},
		"a key that is none":          {[]string{"fial=20%"}, `"fial" is neither a key nor an answer; want one of per, delay`},
		"a rule without quotes":       {[]string{"503,200", "delay=50ms"}, `a rule is one argument, so put it in quotes: '503,200 delay=50ms'`},
		"a preset that is none":       {[]string{"--preset", "flaky"}, `--preset: unknown preset "flaky"; known presets: flaky-llm, outage, overload, slow, streams`},
		"an unreachable preset":       {[]string{"--preset", "slow", "200"}, "no request reaches this rule"},
		"a file that is not there":    {[]string{"--file", dir + "/none.yaml"}, "--file: open "},
		"a file with a mistake":       {[]string{"--file", dir + "/bad.yaml"}, `key "scrpt" is unknown; want match, script`},
		"a file and a preset":         {[]string{"--file", dir + "/bad.yaml", "--preset", "slow"}, "give one of them"},
		"an address that all can see": {[]string{"--listen", "0.0.0.0:0"}, `--listen: "0.0.0.0:0" can be reached from other machines: add --allow-remote`},
		"an address that is none":     {[]string{"--listen", "nowhere"}, "listen tcp"},
		"a certificate without TLS":   {[]string{"--cert", dir + "/x.pem"}, "--cert needs --tls"},
		"a certificate without place": {[]string{"--tls", "--cert", dir + "/none/x.pem"}, "--cert: open "},
		"a seed that is none":         {[]string{"--seed", "x"}, `--seed: "x" is not a whole number`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := clitest.Run(t, append([]string{"chaos"}, tt.args...)...)
			clitest.WantCode(t, got, cli.CodeOwn)
			clitest.WantIn(t, "stderr", got.Stderr, tt.want)
			if got.Out != "" {
				t.Errorf("stdout = %q", got.Out)
			}
		})
	}
}

func TestChaosForOthersWhenWanted(t *testing.T) {
	t.Parallel()
	c := startChaos(t, "--listen", "0.0.0.0:0", "--allow-remote", "200")
	c.url = strings.NewReplacer("0.0.0.0", "127.0.0.1", "[::]", "127.0.0.1").Replace(c.url)
	if got := c.get("/"); got != 200 {
		t.Errorf("GET / = %d", got)
	}
	c.stop()
}

// The reader of standard output goes away after it has read the URL. The server continues to serve.
func TestChaosGoesOnWithoutAReader(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := &chaosProcess{Background: &clitest.Background{T: t, Folder: t.TempDir()}}
	c.Cmd, c.Mark = clitest.Command(t, "chaos", "200")
	c.Stdout, c.Stderr = w, &c.Errors
	c.Begin()
	_ = w.Close()
	buf := make([]byte, 100)
	n, err := r.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	c.url = strings.TrimSpace(string(buf[:n]))
	for range 3 {
		if got := c.get("/"); got != 200 {
			t.Errorf("GET / = %d", got)
		}
	}
	c.Signal(syscall.SIGINT)
	clitest.WantCode(t, c.End(), 0)
}

func TestChaosHelpAndCompletion(t *testing.T) {
	t.Parallel()
	help := clitest.Run(t, "chaos", "--help")
	clitest.WantCode(t, help, 0)
	completion := clitest.Run(t, "__complete", "chaos", "--preset", "")
	for name, use := range chaos.Presets {
		clitest.WantIn(t, "help", help.Out, "\n  "+name+" ")
		clitest.WantIn(t, "completion", completion.Out, name+"\t"+use)
	}
	for _, part := range []string{"Exit codes:", "Examples:", "tideover chaos 503,503,200", "--allow-remote", "fail=20% reset=1%", "/_chaos/"} {
		clitest.WantIn(t, "help", help.Out, part)
	}
	for text := range strings.Lines(help.Out) {
		if long := strings.HasPrefix(text, "  "); !long && len(text) > 84 || strings.Contains(text, "%!") || strings.Contains(text, "PRESETS") {
			t.Errorf("help has the line %q", text)
		}
	}
}

// newChaosRecipe is newRecipe for the section of docs/chaos.md with this heading.
func newChaosRecipe(t *testing.T, heading string) *clitest.Recipe {
	t.Helper()
	clitest.NeedTools(t, "curl", "jq")
	_, section, found := strings.Cut(clitest.ReadPage(t, "chaos.md"), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/chaos.md has no recipe %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	k := clitest.EmptyRecipe(t)
	k.Blocks = clitest.FencedIn(section)
	for _, b := range k.Blocks {
		if name, ok := strings.CutPrefix(b.Text, "# "); ok && b.Language != "sh" {
			name, _, _ = strings.Cut(name, "\n")
			k.Write(k.Path(name), b.Text, 0o600)
		}
	}
	return k
}

func TestRecipeTwoRetries(t *testing.T) {
	t.Parallel()
	k := newChaosRecipe(t, "Exactly two retries")
	got := k.Run(0)
	clitest.WantCode(t, got, 0)
	clitest.WantIn(t, "stderr", got.Stderr, "attempt 3/5 succeeded")
	body, err := os.ReadFile(k.Path("prices.json"))
	if err != nil || !bytes.Contains(body, []byte(`"path":"/prices"`)) {
		t.Errorf("prices.json = %s, %v", body, err)
	}
}

func TestRecipeClientsAndALimit(t *testing.T) {
	t.Parallel()
	k := newChaosRecipe(t, "Clients and a limit")
	got := k.Run(0)
	clitest.WantCode(t, got, 0)
	dec := json.NewDecoder(strings.NewReader(got.Out))
	var by map[string]int
	var counts []int
	if err := dec.Decode(&by); err != nil {
		t.Fatalf("%v in %q", err, got.Out)
	}
	if err := dec.Decode(&counts); err != nil {
		t.Fatalf("%v in %q", err, got.Out)
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	if by["script"] != 10 || total != by["script"]+by["over"] {
		t.Errorf("by = %v, %d arrivals", by, total)
	}
}

func TestRecipeOutage(t *testing.T) {
	t.Parallel()
	k := newChaosRecipe(t, "An outage, and rules in a file")
	begin := time.Now()
	got := k.Run(0)
	clitest.WantCode(t, got, 0)
	// real clock: the outage lasts a second, so that a slow machine only takes longer
	if took := time.Since(begin); took < time.Second {
		t.Errorf("orders were taken after %v, during the outage", took)
	}
	if got.Out != `{"201":3,"503":3}`+"\n" {
		t.Errorf("stdout = %q", got.Out)
	}
}
