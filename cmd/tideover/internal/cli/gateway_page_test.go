//go:build unix

package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retryhttp"
)

var reference = regexp.MustCompile(`\$\{(env|file):([^}]+)\}`)

// configured writes a configuration of a page to a file and returns its path. It also creates all
// files and variables that the configuration refers to.
func (k *recipe) configured(text string) (file string) {
	k.t.Helper()
	file = k.path("tideover.yaml")
	k.write(file, text, 0o600)
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		if m[1] == "env" {
			k.env = append(k.env, m[2]+"=value-of-"+m[2])
		} else {
			k.write(k.path(m[2]), "value of "+m[2], 0o600)
		}
	}
	return file
}

// blocks returns the code blocks of a page that are marked with this language.
func blocks(t *testing.T, name, language string) (list []string) {
	t.Helper()
	for _, b := range fencedIn(page(t, name)) {
		if b.language == language {
			list = append(list, b.text)
		}
	}
	if len(list) == 0 {
		t.Fatalf("docs/%s has nothing in %s", name, language)
	}
	return list
}

// prompted returns the commands in the console blocks of a page, without comments.
func prompted(t *testing.T, name string) (list []string) {
	t.Helper()
	for _, text := range blocks(t, name, "console") {
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
	begin := func(k *recipe, line string) *syncBuffer {
		t.Helper()
		out := new(syncBuffer)
		k.env = append(k.env, "TIDEOVER_GATEWAY_LISTEN=127.0.0.1:0")
		cmd := k.command("sh", "-c", "exec env "+line)
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
	first := begin(emptyRecipe(t), typed[0])
	_, shown, _ := strings.Cut(blocks(t, "gateway.md", "console")[0], "\n")
	shown, _, _ = strings.Cut(shown, "\n")
	if got := regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(first.String(), "127.0.0.1:7878"); !strings.HasPrefix(got, shown+"\n") {
		t.Errorf("%s prints %q, and the page says %q", typed[0], got, shown)
	}

	k := emptyRecipe(t)
	k.configured(blocks(t, "gateway.md", "yaml")[0])
	begin(k, "tideover gateway --config tideover.yaml")
	steered := 0
	for _, line := range typed {
		switch line, _, _ := strings.Cut(line, " | jq "); {
		case strings.HasPrefix(line, "tideover providers"):
			steered++
			wantCode(t, finish(t, k.command("sh", "-c", line)), 0)
		case strings.HasPrefix(line, "tideover requests -"):
			wantCode(t, finish(t, k.command("sh", "-c", line)), 0)
		case strings.HasPrefix(line, "tideover requests"):
			wantCode(t, finish(t, k.command("sh", "-c", line)), codeNoRun) // the gateway has no request with the id of the page
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
	source, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "gateway", "problem.go"))
	if err != nil {
		t.Fatal(err)
	}
	made, told := []string{"busy"}, []string(nil)
	for _, m := range regexp.MustCompile(`(?m)^\tcode\w+\s+= "(\w+)"$`).FindAllStringSubmatch(string(source), -1) {
		made = append(made, m[1])
	}
	_, table, _ := strings.Cut(page(t, "gateway.md"), "\n| code | status | what to do |\n")
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
	_, table, _ := strings.Cut(page(t, "http.md"), "\n| header | value |\n")
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
		if !strings.Contains(page(t, "gateway.md"), "`"+m[1]+"`") {
			t.Errorf("docs/gateway.md does not name %s", m[1])
		}
	}
}
