//go:build unix

package docs_test

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retryhttp"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
)

// prompted returns the commands in the console blocks of a page, without comments.
func prompted(t *testing.T, name string) (list []string) {
	t.Helper()
	for _, text := range clitest.Blocks(t, name, "console") {
		for line := range strings.Lines(text) {
			if typed, ok := strings.CutPrefix(line, "$ "); ok {
				typed, _, _ = strings.Cut(typed, " # ")
				list = append(list, strings.TrimSpace(typed))
			}
		}
	}
	return list
}

// background starts a command that runs until the test ends, and waits until its output has the
// text. The function that it returns ends the command earlier.
func background(k *clitest.Recipe, line, ready string) (out *clitest.SyncBuffer, end func()) {
	k.T.Helper()
	out = new(clitest.SyncBuffer)
	cmd := k.Command("sh", "-c", "exec env "+line)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		k.T.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Cancel()
		_ = cmd.Wait()
	})
	k.T.Cleanup(end)
	testwait.Until(k.T, line+" prints "+ready, func() bool { return strings.Contains(out.String(), ready) })
	return out, end
}

// The tutorial of docs/gateway.md works as written, but on free ports: each shell block runs, and
// prints the block that follows it.
func TestTheTutorialOfTheGatewayWorks(t *testing.T) {
	t.Parallel()
	clitest.NeedTools(t, "curl")
	k := clitest.EmptyRecipe(t)
	k.Env = append(k.Env, "TIDEOVER_GATEWAY_LISTEN=127.0.0.1:0")
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	var ports []string // addresses on the page, each followed by the real one
	run := func(script string, shown []string) {
		got := clitest.Finish(t, k.Command("sh", "-c", strings.NewReplacer(ports...).Replace(script)))
		clitest.WantCode(t, got, 0)
		if missing := firstMissing(shown, got.Out); missing != "" {
			t.Errorf("%s: the page shows %q, which is not in\n%s", script, missing, got.Out)
		}
	}
	var log *clitest.SyncBuffer // of the gateway
	var request string
	var endAPIs []func()
	steps := clitest.FencedIn(clitest.ReadPage(t, "gateway.md"))
	for i, step := range steps {
		var shown []string
		if i+1 < len(steps) && steps[i+1].Language == "" {
			shown = shownLines(steps[i+1].Text)
		}
		switch {
		case step.Language == "yaml":
			k.Write(k.Path("tideover.yaml"), strings.NewReplacer(ports...).Replace(step.Text), 0o600)
			if log == nil {
				break
			}
			testwait.Until(t, "the gateway loads the file", func() bool { return strings.Contains(log.String(), "configuration loaded") })
			endAPIs[0]()
			run(request, []string{"X-Tideover-Provider: spare"})
		case step.Language != "sh":
		case strings.HasPrefix(step.Text, "tideover chaos"):
			listen := address.FindString(step.Text)
			out, end := background(k, strings.Replace(step.Text, listen, "127.0.0.1:0", 1), "http://")
			ports, endAPIs = append(ports, listen, address.FindString(out.String())), append(endAPIs, end)
		case strings.HasPrefix(step.Text, "tideover gateway"):
			log, _ = background(k, step.Text, "the page is at")
			if missing := firstMissing(shown, log.String()); missing != "" {
				t.Errorf("the page shows %q, which is not in\n%s", missing, log.String())
			}
			ports = append(ports, "127.0.0.1:7878", address.FindString(log.String()))
		default:
			run(step.Text, shown)
			if strings.HasPrefix(step.Text, "curl") {
				request = step.Text
			}
		}
	}
	if request == "" || len(endAPIs) != 2 {
		t.Errorf("the page has %d APIs, and the request %q", len(endAPIs), request)
	}
}

// The gateway starts without a file, as docs/gateway.md shows. The commands in the console blocks of
// docs/gateway-howto.md work.
func TestThePagesOfTheGatewayWork(t *testing.T) {
	t.Parallel()
	const ready = "the page is at"
	alone := clitest.EmptyRecipe(t)
	alone.Env = append(alone.Env, "TIDEOVER_GATEWAY_LISTEN=127.0.0.1:0")
	typed := prompted(t, "gateway.md")[0]
	first, _ := background(alone, typed, ready)
	_, shown, _ := strings.Cut(clitest.Blocks(t, "gateway.md", "console")[0], "\n")
	if got := regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(first.String(), "127.0.0.1:7878"); !strings.HasPrefix(got, shown) {
		t.Errorf("%s prints %q, and the page says %q", typed, got, shown)
	}

	k := clitest.EmptyRecipe(t)
	k.Env = append(k.Env, "TIDEOVER_GATEWAY_LISTEN=127.0.0.1:0")
	k.Configured(clitest.Blocks(t, "gateway-howto.md", "yaml")[0])
	background(k, "tideover gateway --config tideover.yaml", ready)
	steered := 0
	for _, line := range prompted(t, "gateway-howto.md") {
		switch line, _, _ := strings.Cut(line, " | jq "); {
		case strings.HasPrefix(line, "tideover providers"):
			steered++
			clitest.WantCode(t, clitest.Finish(t, k.Command("sh", "-c", line)), 0)
		case strings.HasPrefix(line, "tideover requests -"):
			clitest.WantCode(t, clitest.Finish(t, k.Command("sh", "-c", line)), 0)
		case strings.HasPrefix(line, "tideover requests"):
			clitest.WantCode(t, clitest.Finish(t, k.Command("sh", "-c", line)), cli.CodeUnknown) // the gateway has no request with the id of the page
		}
	}
	if steered < 4 {
		t.Errorf("the page has %d commands that show and steer providers", steered)
	}
}

// docs/gateway-reference.md lists every error code of package gateway, and that of a server with too many
// connections.
func TestThePageHasEveryCodeOfTheGateway(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(testfile.Repository(t, "gateway", "problem.go"))
	if err != nil {
		t.Fatal(err)
	}
	made, told := []string{"busy"}, []string(nil)
	for _, m := range regexp.MustCompile(`(?m)^\tcode\w+\s+= "(\w+)"$`).FindAllStringSubmatch(string(source), -1) {
		made = append(made, m[1])
	}
	_, table, _ := strings.Cut(clitest.ReadPage(t, "gateway-reference.md"), "\n| code | status | what to do |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.Lines(table) {
		codes, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(codes, -1) {
			told = append(told, m[1])
		}
	}
	slices.Sort(made)
	slices.Sort(told)
	if len(made) == 1 || !slices.Equal(made, told) {
		t.Errorf("the gateway has the codes %v, and docs/gateway-reference.md %v", made, told)
	}
}

// docs/http.md lists the deadline headers that the code reads.
func TestThePagesNameTheDeadlinesThatAreRead(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(clitest.ReadPage(t, "http.md"), "\n| header | value |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1)
	if len(rows) != 5 {
		t.Errorf("docs/http.md has %d headers", len(rows))
	}
	for _, m := range rows {
		read := false
		for _, value := range []string{"5", "5S"} {
			_, ok := retryhttp.TimeLeft(http.Header{m[1]: {value}})
			read = read || ok
		}
		if !read {
			t.Errorf("%s, which docs/http.md names, is not read", m[1])
		}
		if !strings.Contains(clitest.ReadPage(t, "gateway-reference.md"), "`"+m[1]+"`") {
			t.Errorf("docs/gateway-reference.md does not name %s", m[1])
		}
	}
}
