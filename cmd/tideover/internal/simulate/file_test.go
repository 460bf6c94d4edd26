package simulate

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/sim"
)

// Each built-in scenario is the same after a round trip through YAML.
func TestPresetsComeBackFromYAML(t *testing.T) {
	t.Parallel()
	n := 0
	for name := range sim.Presets {
		n++
		f, _ := Preset(name)
		text := f.YAML()
		got, err := Parse("x.yaml", []byte(text))
		if err != nil {
			t.Errorf("%s: %v in\n%s", name, err, text)
			continue
		}
		if !reflect.DeepEqual(got, f) {
			t.Errorf("%s: got %+v, want %+v", name, got, f)
		}
		if len(f.Policies) < 2 {
			t.Errorf("%s has %d policies", name, len(f.Policies))
		}
	}
	if n != len(defaults) {
		t.Errorf("there are %d scenarios, and policies for %d", n, len(defaults))
	}
}

func TestAFullFileComesBackFromYAML(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"full.yaml", "writers.yaml", "closed.yaml", "open.yaml", "group.yaml"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		f, err := Parse(name, data)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(name, []byte(f.YAML()))
		if err != nil || !reflect.DeepEqual(again, f) {
			t.Errorf("%s: got %+v, %v, want %+v; from\n%s", name, again, err, f, f.YAML())
		}
	}
}

// The full file has every key, so that none is untested.
func TestTheFullFileHasEveryKey(t *testing.T) {
	t.Parallel()
	text := ""
	for _, name := range []string{"full.yaml", "writers.yaml", "closed.yaml", "open.yaml", "group.yaml"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		f, err := Parse(name, data)
		if err != nil {
			t.Fatal(err)
		}
		text += f.YAML()
	}
	for _, path := range allKeys() {
		key := path[strings.LastIndexAny(path, ".")+1:]
		if !strings.Contains(text, key+":") {
			t.Errorf("no file has %s", path)
		}
	}
}

// A file with many problems gets an error with a line for each.
func TestProblemsHaveTheirLines(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/bad.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse("bad.yaml", data)
	if err == nil || !Impossible(err) {
		t.Fatalf("err = %v", err)
	}
	testfile.Golden(t, "testdata/bad.txt", []byte(err.Error()+"\n"))
}

func TestWrongFiles(t *testing.T) {
	t.Parallel()
	const good = "duration: 1s\nclients: {count: 1, arrivals: open, rate: 1}\nservices: [{name: a, workers: 1, latency: {distribution: constant, mean: 1ms}}]\n"
	if _, err := Parse("good.yaml", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "x.yaml: the file is empty"},
		{"a list", "- 1\n", "x.yaml:1:1: a list, where a map is expected"},
		{"not YAML", "a: [\n", "x.yaml:1:"},
		{"two documents", good + "---\na: 1\n", "x.yaml:5:1: the file has several YAML documents"},
		{"a key twice", good + "duration: 2s\n", `x.yaml:4:1: duration: key "duration" is already set at line 1`},
		{"a missing section", "duration: 1s\nclients: {count: 1, arrivals: open, rate: 1}\n", "x.yaml:1:1: services: the list is empty: add at least one"},
		{"a missing key", strings.Replace(good, ", mean: 1ms", "", 1), "x.yaml:3:43: services[0].latency.mean: must be above zero"},
		{"a number for a list", good + "failures: 3\n", "x.yaml:4:11: failures: a number, where a list is expected"},
		{"a text for a number", strings.Replace(good, "workers: 1", "workers: many", 1), `services[0].workers: "many" is not a whole number`},
		{"a fraction", strings.Replace(good, "workers: 1", "workers: 1.5", 1), `services[0].workers: "1.5" is not a whole number`},
		{"not a number", strings.Replace(good, "rate: 1", "rate: .nan", 1), "x.yaml:2:43: .nan: this YAML value is not supported"},
		{"infinite", strings.Replace(good, "rate: 1", "rate: Infinity", 1), "clients.rate: +Inf is not above 0"},
		{"no truth", strings.Replace(good, "workers: 1", "deadlines: 1", 1), "services[0].deadlines: a number, where true or false is expected"},
		{"too few shares", strings.Replace(good, "rate: 1", "rate: 1, priorities: [1]", 1), "clients.priorities: 1 values: want 5"},
		{"no value", good + "drain:\n", "x.yaml:4:8: drain: the value is missing"},
		{"no policy", good + "policies: {a: {breaker: {}}}\n", `policies.a: "policy" is missing`},
		{"a policy of another world", good + "policies: [default, 'daemon reset-after=1m']\n", "x.yaml:4:21: policies[1]: reset-after: the simulator can't honour"},
		{"two policies of a name", good + "policies: [http, ' http']\n", `x.yaml:4:18: policies[1]: name: "http" is the name of policies[0] already`},
		{"a bad policy of a service", strings.Replace(good, "workers: 1", "workers: 1, calls: b, policy: nope", 1), `services[0].policy: policy "nope"`},
	} {
		_, err := Parse("x.yaml", []byte(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestPoliciesOfAFile(t *testing.T) {
	t.Parallel()
	const head = "duration: 1s\nclients: {count: 1, arrivals: open, rate: 1}\nservices: [{name: a, workers: 1, latency: {distribution: constant, mean: 1ms}}]\n"
	fixed, http := must("fixed(1s) attempts=2"), must("http")
	for _, tt := range []struct {
		text string
		want []sim.Contestant
	}{
		{"", nil},
		{"policies: ['fixed(1s)  attempts=2', http]", []sim.Contestant{{Name: "fixed(1s) attempts=2", Policy: fixed}, {Name: "http", Policy: http}}},
		{"policies: {b: fixed(1s) attempts=2, a: http}", []sim.Contestant{{Name: "b", Policy: fixed}, {Name: "a", Policy: http}}},
		{"policies: {a: {policy: http, breaker: {}}}", []sim.Contestant{{Name: "a", Policy: http, Breaker: &breaker.Config{}}}},
		{"policies: {a: {policy: http}}", []sim.Contestant{{Name: "a", Policy: http}}},
	} {
		f, err := Parse("x.yaml", []byte(head+tt.text))
		if err != nil || !reflect.DeepEqual(f.Policies, tt.want) {
			t.Errorf("%s: got %+v, %v, want %+v", tt.text, f.Policies, err, tt.want)
		}
		if f.Scenario.Name != "x" {
			t.Errorf("the name is %q, want that of the file", f.Scenario.Name)
		}
	}
}

func TestParsePolicy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, name, policy string }{
		{"http", "http", "http"},
		{"mine=http", "mine", "http"},
		{"fast-1=fixed(10ms) attempts=5", "fast-1", "fixed(10ms) attempts=5"},
		{"http  attempts=6", "http attempts=6", "http attempts=6"},
		{"fixed(10ms) attempts=5", "fixed(10ms) attempts=5", "fixed(10ms) attempts=5"},
		{"http budget=ratio(0.1)", "http budget=ratio(0.1)", "http budget=ratio(0.1)"},
	} {
		c, err := ParsePolicy(tt.text)
		if want, _ := retry.Parse(tt.policy); err != nil || c.Name != tt.name || c.Policy != want {
			t.Errorf("ParsePolicy(%q) = %+v, %v", tt.text, c, err)
		}
	}
	for _, text := range []string{"", "=", "a=", "=http", "attempts=5", "attempts=http", "a b=http", "é=http", "a=b=http"} {
		if c, err := ParsePolicy(text); err == nil {
			t.Errorf("ParsePolicy(%q) = %+v, want an error", text, c)
		}
	}
}

func TestReadRefusesAFolder(t *testing.T) {
	t.Parallel()
	if _, err := Read(t.TempDir()); err == nil || Impossible(err) {
		t.Errorf("err = %v", err)
	}
}

// FuzzParse checks that no input makes Parse panic, and that accepted files can be run and survive
// a round trip through YAML.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for name := range sim.Presets {
		preset, _ := Preset(name)
		f.Add([]byte(preset.YAML()))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("x.yaml", data)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error that says nothing")
			}
			return
		}
		if err := file.Scenario.Validate(); err != nil {
			t.Errorf("accepted a file that can't be run: %v", err)
		}
		Describe(file.Scenario)
		again, err := Parse("x.yaml", []byte(file.YAML()))
		if err != nil || !reflect.DeepEqual(again, file) {
			t.Errorf("%q is\n%s\nand comes back as %+v, %v", data, file.YAML(), again, err)
		}
	})
}
