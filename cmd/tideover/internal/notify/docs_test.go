package notify_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/internal/testfile"
)

var (
	yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	envRef    = regexp.MustCompile(`\$\{env:(\w+)\}`)
)

// TestTheExamplesOfThePageAreRight loads every example of docs/notify.md.
func TestTheExamplesOfThePageAreRight(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/notify.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mail-password"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, block := range yamlBlock.FindAllStringSubmatch(string(page), -1) {
		environ := []string{"HOME=/home/me"}
		for _, ref := range envRef.FindAllStringSubmatch(block[1], -1) {
			environ = append(environ, ref[1]+"=https://example.com/x")
		}
		cfg, err := config.Load(config.Source{Path: filepath.Join(dir, "tideover.yaml"), Data: []byte(block[1]), Environ: environ})
		if err != nil {
			t.Errorf("%s\n%v", block[1], err)
			continue
		}
		for _, n := range cfg.Notifiers {
			kinds[n.Kind] = true
		}
	}
	if len(kinds) != 5 {
		t.Errorf("there are examples of %v only", kinds)
	}
}

// docs/notify.md has all events, and all fields of a message.
func TestThePageHasAllEventsAndFields(t *testing.T) {
	const page = "../../../../docs/notify.md"
	var rows [][]string
	for _, c := range testfile.Consts(t, "message.go", "Event") {
		rows = append(rows, []string{"`" + c.Value + "`", testfile.Sentence(c.Doc)})
	}
	testfile.Section(t, page, "events", testfile.Table(t, []string{"event", "when"}, rows))

	rows = nil
	for _, v := range notify.MessageVariables() {
		rows = append(rows, []string{"`." + v.Name + "`", v.Doc})
	}
	testfile.Section(t, page, "fields of a message", testfile.Table(t, []string{"field", "meaning"}, rows))
}
