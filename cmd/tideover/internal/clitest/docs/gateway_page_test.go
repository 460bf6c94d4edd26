//go:build unix

package docs_test

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
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

// The commands in the console blocks of docs/gateway.md work.
func TestThePageOfTheGatewayWorks(t *testing.T) {
	t.Parallel()
	typed := prompted(t, "gateway.md")
	begin := func(k *clitest.Recipe, line string) *clitest.SyncBuffer {
		t.Helper()
		out := new(clitest.SyncBuffer)
		k.Env = append(k.Env, "TIDEOVER_GATEWAY_LISTEN=127.0.0.1:0")
		cmd := k.Command("sh", "-c", "exec env "+line)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Cancel()
			_ = cmd.Wait()
		})
		testwait.Until(t, line+" serves", func() bool { return strings.Contains(out.String(), "the page is at") })
		return out
	}
	first := begin(clitest.EmptyRecipe(t), typed[0])
	_, shown, _ := strings.Cut(clitest.Blocks(t, "gateway.md", "console")[0], "\n")
	shown, _, _ = strings.Cut(shown, "\n")
	if got := regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(first.String(), "127.0.0.1:7878"); !strings.HasPrefix(got, shown+"\n") {
		t.Errorf("%s prints %q, and the page says %q", typed[0], got, shown)
	}

	k := clitest.EmptyRecipe(t)
	k.Configured(clitest.Blocks(t, "gateway.md", "yaml")[0])
	begin(k, "tideover gateway --config tideover.yaml")
	steered := 0
	for _, line := range typed {
		switch line, _, _ := strings.Cut(line, " | jq "); {
		case strings.HasPrefix(line, "tideover providers"):
			steered++
			clitest.WantCode(t, clitest.Finish(t, k.Command("sh", "-c", line)), 0)
		case strings.HasPrefix(line, "tideover requests -"):
			clitest.WantCode(t, clitest.Finish(t, k.Command("sh", "-c", line)), 0)
		case strings.HasPrefix(line, "tideover requests"):
			clitest.WantCode(t, clitest.Finish(t, k.Command("sh", "-c", line)), cli.CodeNoRun) // the gateway has no request with the id of the page
		}
	}
	if steered < 4 {
		t.Errorf("the page has %d commands that show and steer providers", steered)
	}
}

// docs/gateway.md lists every error code of package gateway, and that of a server with too many
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
	_, table, _ := strings.Cut(clitest.ReadPage(t, "gateway.md"), "\n| code | status | what to do |\n")
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
		t.Errorf("the gateway has the codes %v, and docs/gateway.md %v", made, told)
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
		if !strings.Contains(clitest.ReadPage(t, "gateway.md"), "`"+m[1]+"`") {
			t.Errorf("docs/gateway.md does not name %s", m[1])
		}
	}
}
