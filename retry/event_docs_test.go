package retry

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testfile"
)

const eventsPage = "../docs/api.md"

// docs/api.md has all kinds of events and the fields of an event. The descriptions are the comments
// in event.go.
func TestThePageHasAllEvents(t *testing.T) {
	fields := map[string]string{} // names in JSON
	wire := reflect.TypeFor[wireEvent]()
	for i := range wire.NumField() {
		name, _, _ := strings.Cut(wire.Field(i).Tag.Get("json"), ",")
		fields[wire.Field(i).Name] = name
	}
	fields["Err"] = fields["Error"]
	goName := regexp.MustCompile(`\b(Err|Delay|Until|By|Note|Reason|Step|Name)\b`)
	inJSON := func(doc string) string {
		return testfile.Sentence(goName.ReplaceAllStringFunc(doc, func(name string) string { return "`" + fields[name] + "`" }))
	}

	kinds := testfile.Consts(t, "event.go", "EventKind")
	if len(kinds) != len(eventNames)-1 {
		t.Errorf("%d kinds of events have %d names", len(kinds), len(eventNames)-1)
	}
	var rows [][]string
	for i, k := range kinds {
		rows = append(rows, []string{"`" + EventKind(i+1).String() + "`", inJSON(k.Doc)})
	}
	testfile.Section(t, eventsPage, "kinds of events", testfile.Table(t, []string{"kind", "meaning"}, rows))

	rows = nil
	for _, f := range testfile.StructFields(t, "event.go", "Event") {
		if fields[f.Name] == "" {
			t.Errorf("the field %s is not in the JSON", f.Name)
		}
		rows = append(rows, []string{"`" + fields[f.Name] + "`", testfile.Sentence(f.Doc)})
	}
	testfile.Section(t, eventsPage, "fields of events", testfile.Table(t, []string{"field", "meaning"}, rows))
}
