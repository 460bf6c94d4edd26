package detect

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/textfmt"
)

const docFile = "../../../../docs/detect.md"

// packTables renders the packs as in the documentation.
func packTables(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, name := range Names() {
		spec := builtin(t, name).Spec()
		fmt.Fprintf(&b, "### %s\n\n%s", name, spec.Description)
		if spec.Extends != "" {
			fmt.Fprintf(&b, " Extends `%s`.", spec.Extends)
		}
		b.WriteString("\n\n| rule | by | verdict | example |\n| --- | --- | --- | --- |\n")
		for _, r := range spec.Rules {
			fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` |\n", r.ID, kindOf(r), verdictOf(r), strings.ReplaceAll(textfmt.TruncateWithin(r.Examples[0], 110, "..."), "|", `\|`))
		}
		b.WriteString("\n")
		b.WriteString(exitTable(spec))
	}
	return b.String()
}

func kindOf(r Rule) string {
	switch {
	case r.Header != "":
		return "header"
	case r.Line != "":
		return "line"
	default:
		return "event"
	}
}

func verdictOf(r Rule) string {
	var words []string
	if r.Reason != Unknown {
		words = append(words, r.Reason.String())
	}
	if r.Alive {
		words = append(words, "alive")
	}
	if r.MovedOn {
		words = append(words, "moved on")
	}
	if r.Terminal {
		words = append(words, "never wait")
	}
	if r.For != "" {
		words = append(words, "wait "+r.For)
	}
	if r.At != "" {
		words = append(words, "wait until "+r.At)
	}
	if r.Fallback {
		words = append(words, "if nothing else matches")
	}
	return strings.Join(words, ", ")
}

func exitTable(spec Spec) string {
	if len(spec.ExitCodes) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("| exit code | reason | meaning |\n| --- | --- | --- |\n")
	for _, code := range slices.Sorted(maps.Keys(spec.ExitCodes)) {
		exit := spec.ExitCodes[code]
		fmt.Fprintf(&b, "| %d | %s | %s |\n", code, exit.Reason, exit.Meaning)
	}
	return b.String() + "\n"
}

func TestTheDocumentationHasEveryRuleAndMessage(t *testing.T) {
	t.Parallel()
	testfile.Section(t, docFile, "messages", messageTable(t))
	testfile.Section(t, docFile, "packs", "\n"+packTables(t))
}

func TestTheDocumentationHasEveryMacroAndReason(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	words := slices.Concat(reasonNames, []string{"{lead}", "{end}", "{limit}", "{duration}", "{moment}", "{date}", "{epoch}", "{seconds}"})
	for form := range forms {
		words = append(words, form)
	}
	for _, w := range words {
		if !strings.Contains(string(text), "`"+w+"`") {
			t.Errorf("%s does not say what `%s` is", docFile, w)
		}
	}
}

func TestThePackOfTheDocumentationIsOne(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```yaml\n")
	pack, _, _ := strings.Cut(rest, "```")
	if !ok {
		t.Fatalf("%s has no pack", docFile)
	}
	if _, err := Parse("oracle", []byte(pack)); err != nil {
		t.Error(err)
	}
}
