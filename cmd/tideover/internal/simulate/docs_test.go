package simulate

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/sim"
)

// keysBelow returns the keys of a struct as docs/sim.md writes them.
func keysBelow(path string, typ reflect.Type) (keys []string) {
	names, fields := fieldsOf(typ)
	for _, name := range names {
		at, t := path+name, fields[name].Type
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
			at, t = at+"[]", t.Elem()
		}
		if t.Kind() == reflect.Struct && t != scheduleType {
			keys = append(keys, keysBelow(at+".", t)...)
		} else {
			keys = append(keys, at)
		}
	}
	return keys
}

// allKeys are the keys of a file.
func allKeys() []string {
	keys := append(keysBelow("", reflect.TypeFor[sim.Scenario]()), policiesKey)
	return append(keys, keysBelow("policies.*.", reflect.TypeFor[equipment]())...)
}

func docs(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/sim.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// docs/sim.md lists the keys of the structs.
func TestThePageHasEveryKey(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(docs(t), "## A scenario of your own")
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		listed = append(listed, m[1])
	}
	for _, key := range allKeys() {
		if !slices.Contains(listed, key) {
			t.Errorf("docs/sim.md does not have the key %s", key)
		}
	}
	for _, key := range listed {
		if !slices.Contains(allKeys(), key) {
			t.Errorf("docs/sim.md has the key %s, which there is not", key)
		}
	}
}

// docs/sim.md lists the rows of the table.
func TestThePageHasEveryRow(t *testing.T) {
	t.Parallel()
	for _, m := range measures {
		name := m.name
		if m.peak {
			name += " in 1s"
		}
		if strings.HasPrefix(name, "latency") {
			name = "latency p50"
		}
		if !strings.Contains(docs(t), "| `"+name+"`") {
			t.Errorf("docs/sim.md does not have the row %s", name)
		}
	}
}

// The example in docs/sim.md can be run.
func TestTheFileOfThePageIsRight(t *testing.T) {
	t.Parallel()
	m := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(docs(t))
	f, err := Parse("page.yaml", []byte(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	if v := simulated(t, f, 2); len(v.Report.Results) != 3 {
		t.Errorf("%d policies ran", len(v.Report.Results))
	}
}
