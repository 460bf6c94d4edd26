package chaos

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// specs are texts in canonical form.
var specs = []string{
	"*: 200",
	"*: 503,503,200",
	"*: 429x3,200",
	"*: 503,200 cycle",
	"seed=7; *: 503=20% reset=1%",
	"/v1/messages: 429(retry-after=2)x2,200; *: delay=50ms..200ms fail=20%",
	"POST /v1: 429(retry-after=imf:2s x-should-retry=false)",
	"/v1beta/models/x:generate: 429(retry-info=2.5s)",
	"header(x-tenant): 503; GET header(x-tier=gold): 200",
	`header(x-name="a b"): 200(body="say \"hi\"; (or not), \u00e9")`,
	"*: 429(x-ratelimit-reset-requests=6m0s),429(anthropic-ratelimit-tokens-reset=rfc3339:30s),429(x-ratelimit-reset=epoch:5s date=imf:-1h)",
	"*: 429(retry-after=garbage),429(retry-after=negative),429(retry-after=huge),429(retry-after=1.5),429(error=insufficient_quota)",
	"*: hang,reset,reset(delay=1s),close,malformed,fail",
	"*: 200(cut=50%),200(chunked cut=0),200(stall=1KiB),200(reset=100),200(dribble=10/100ms),200(padding=16MiB),413(early),200(read=1KiB/50ms)",
	"*: 200(stream=openai events=5 every=20ms),200(error=overloaded_error stream=anthropic error-at=start),200(stream=responses error-at=first),200(stream=auto no-done),200(stream=plain cut=event:3),200(stream=openai error-at=3)",
	"*: per=x-request-id delay=p50:100ms..p99:2s body=64KiB",
	"*: body=echo concurrent=4 rate=100/min service=50ms+10ms over=429(retry-after=due)",
	"*: 503=1% down 30s every 5m",
	"*: down 30s every 5m from 10s as refuse down from 1m to 1m30s as 429(retry-after=rfc850:due)",
	"/a: down from 0s to 1d as hang; /b: down 1s every 2s as reset",
}

func TestTheTextHasOneSpelling(t *testing.T) {
	for _, text := range specs {
		s, err := Parse(text)
		if err != nil {
			t.Errorf("Parse(%q) = %v", text, err)
			continue
		}
		if got := s.String(); got != text {
			t.Errorf("Parse(%q) prints %q", text, got)
		}
		if err := s.Validate(); err != nil {
			t.Errorf("Parse(%q) is not valid: %v", text, err)
		}
	}
}

func TestWhatMayBeWrittenInOtherWays(t *testing.T) {
	for text, want := range map[string]string{
		"503,503,200":                              "*: 503,503,200",
		"\n/a: 200\n\n/b: 503;\n":                  "/a: 200; /b: 503",
		"*:":                                       "*: 200",
		"* : 200":                                  "*: 200",
		"fail=20.0% delay=1000ms":                  "*: delay=1s fail=20%",
		"200x1":                                    "*: 200",
		"down from 10s to 25s after start":         "*: down from 10s to 25s",
		"down 30s every 300s from 5m as 503":       "*: down 30s every 5m",
		"429(RETRY-AFTER=2)":                       "*: 429(retry-after=2)",
		"200(early cut=1024 delay=5ms)":            "*: 200(delay=5ms cut=1KiB early)",
		"rate=60/m concurrent=3":                   "",
		"rate=60/min":                              "*: rate=60/min",
		"header(X-Tenant=a): 200":                  "header(x-tenant=a): 200",
		"200(body=auto)":                           "*: 200",
		"delay=50ms..50ms":                         "*: delay=50ms",
		`429(retry-after="2")`:                     "*: 429(retry-after=2)",
		"seed=0; 200":                              "*: 200",
		"/v1/messages: 429(retry-after=2)x2,200\n": "/v1/messages: 429(retry-after=2)x2,200",
	} {
		s, err := Parse(text)
		if got := s.String(); (err != nil) != (want == "") || got != want {
			t.Errorf("Parse(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "the spec has no rule",
		"  ;\n":                            "the spec has no rule",
		"5O3,200":                          `"5O3" is no answer; want a status from 200 to 599`,
		"/a: 200; /b: resset":              `rule 2 "/b: resset": "resset" is no answer`,
		"199":                              `"199" is no answer`,
		"600":                              `"600" is no answer`,
		"503,,200":                         "a comma without an answer",
		"503 200":                          `"200": script is already set; a script is one word`,
		"503x0":                            `"503x0": "0" is not a number from 1 to`,
		"429(retry-afer=2)":                `"retry-afer" is no argument of an answer; want one of delay, error,`,
		"429(retry-after)":                 `header "retry-after" has no value`,
		"429(retry-after=)":                `retry-after: the value is missing`,
		"429(retry-after=imf:soon)":        `"soon" is not a duration`,
		"429(retry-after=2 retry-after=3)": `"retry-after" is set twice`,
		"429(retry-after=2":                "has no closing parenthesis",
		"200)":                             "closes a parenthesis that is not open",
		`200(body="x)`:                     "has no closing quote",
		`429(x-a="\q")`:                    "is not a text in quotes",
		"429(x-a=\"a\\nb\")":               "can't be the value of a header",
		"200(body=hello)":                  `"hello" is not a body; want auto, echo, none`,
		"200(early=1)":                     `"early" takes no value`,
		"200(cut=)":                        "is not a position in a body",
		"200(cut=101%)":                    "is not a position in a body",
		"200(cut=5 stall=5)":               "can't be combined with cut=5",
		"200(cut=event:2)":                 "event: is a position in a stream",
		"200(dribble=0/1s)":                "the number of bytes must be above zero",
		"200(dribble=5)":                   "not a number of bytes per time",
		"200(padding=65MiB)":               "up to 64MiB",
		"200(events=5)":                    "require stream=",
		"200(stream=opnai)":                `"opnai" is no form of a stream; want auto, openai`,
		"200(stream=openai error-at=last)": `"last" is no place for an error; want first, start`,
		"200(stream=openai body=echo)":     "both a body and a stream",
		"200(stream=plain no-done)":        "no event that marks its end",
		"200(error=x)":                     "error requires a status of 400 or more",
		"200(retry-info=1s)":               "retry-info requires a status of 400 or more",
		"204(body=echo)":                   "status 204 or 304 has no body",
		"hang(delay=1s)":                   "hang takes no delay",
		"reset(early)":                     "reset takes no argument but delay",
		"fail=20":                          `"fail=20": "20" is not a share such as 20%`,
		"fail=0%":                          "is not a share",
		"fail=60% reset=50%":               "the shares add up to 110%",
		"fial=20%":                         `"fial" is neither a key nor an answer; want one of per, delay, body`,
		"429(x=1)=5%":                      `"x" is no argument of an answer`,
		"delay=50":                         `delay: "50" is not a duration`,
		"delay=2s..1s":                     "must not be shorter than the first",
		"delay=0s":                         "a delay must be above zero",
		"delay=p50:1s..2s":                 "want 50ms, 50ms..200ms or p50:50ms..p99:2s",
		"delay=1s delay=2s":                "delay is already set",
		"concurrent=0":                     `concurrent: "0" is not a number from 1`,
		"rate=5":                           `rate: rate "5": want events per s`,
		"rate=200000/s":                    "at most 100000",
		"over=429":                         "over= requires concurrent= or rate=",
		"429(retry-after=due)":             "due can be used only in over= and down",
		"refuse":                           "refuse can be used only in down",
		"/a: down 1s every 2s as refuse":   "because it closes the port",
		"down 5m every 30s":                "the outage must end before it begins again",
		"down 5m":                          `found "" instead of every`,
		"down from 5s until 10s":           `found "until" instead of to; want down from 10s to 25s`,
		"down from 25s to 10s":             "it must end after it begins",
		"down soon every 5m":               `"soon" is not a duration`,
		"down 1s every 5s as 42":           `"42" is no answer`,
		"*: 200; /a: 503":                  `rule 2 "/a: 503": no request reaches this rule: rule 1 matches them all (*)`,
		"/a: 200; POST /a/b: 503":          "no request reaches this rule",
		"/a /b: 200":                       `"/b" can't be combined with "/a"`,
		"a: 200":                           `"a" does not tell which requests are meant`,
		"header(a b): 200":                 "is not the name of a header",
		"seed=x; 200":                      `seed: "x" is not a whole number`,
		"200; seed=7":                      "only one seed, and it must come before the rules",
		"per=a,b":                          "is not the name of a header",
		"delay=400d":                       "is above 366d",
		strings.Repeat("200;", 20000):      "at most 65536 are read",
	} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%.80q) = %v, want %q in it", text, err, want)
		}
	}
}

func TestASpecThatIsDataIsChecked(t *testing.T) {
	for want, s := range map[string]Spec{
		"":                            {Rules: []Rule{{Script: []Step{{Answer: Answer{Status: 503}}}}}}, // Times 0 means once
		"the spec has no rule":        {},
		`"503hang" is no answer`:      {Rules: []Rule{{Script: []Step{{Answer: Answer{Status: 503, Act: Hang}, Times: 1}}}}},
		`"50" is no answer`:           {Rules: []Rule{{Script: []Step{{Answer: Answer{Status: 50}, Times: 1}}}}},
		`"hop" is no argument`:        {Rules: []Rule{{Script: []Step{{Answer: Answer{Status: 503, Headers: []Header{{"hop", "1"}}}, Times: 1}}}}},
		`it must end after it begins`: {Rules: []Rule{{Down: []Outage{{From: time.Second}}}}},
		"is not a duration":           {Rules: []Rule{{Delay: Delay{Low: -1, High: -1}}}},
		"does not tell which":         {Rules: []Rule{{Match: Match{Method: "post"}}}},
		"is neither a key nor an ans": {Rules: []Rule{{Random: []Chance{{Percent: 5}}}}},
	} {
		err := s.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Validate(%q) = %v, want %q in it", s, err, want)
		}
	}
}

func TestPresets(t *testing.T) {
	n := 0
	for name, use := range Presets {
		n++
		s, err := Preset(name)
		if err != nil || use == "" {
			t.Errorf("Preset(%q) = %v, %v", name, s, err)
		}
		if again, err := Parse(s.String()); err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("preset %s does not come back: %v, %v", name, again, err)
		}
	}
	if n != 5 {
		t.Errorf("%d presets, want 5", n)
	}
	if _, err := Preset("flaky"); err == nil || !strings.Contains(err.Error(), `unknown preset "flaky"; known presets: flaky-llm, outage`) {
		t.Errorf("Preset(flaky) = %v", err)
	}
}

// TestThePageHasEveryFault checks that docs/chaos-reference.md lists every fault.
func TestThePageHasEveryFault(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "docs", "chaos-reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	var want []string
	want = append(append(want, namesOf(arguments())...), keyNames()...)
	want = append(append(append(want, acts...), bodies...), streamForms...)
	for _, f := range waitForms {
		want = append(want, f.name+":")
	}
	for name := range nonsense {
		want = append(want, name)
	}
	for name := range Presets {
		want = append(want, name)
	}
	for _, word := range want {
		if !strings.Contains(page, "`"+word) && !strings.Contains(page, word+"=") && !strings.Contains(page, "="+word) {
			t.Errorf("docs/chaos-reference.md does not have %q", word)
		}
	}
	for _, m := range regexp.MustCompile("`([0-9]{3}\\([^`]+\\))`").FindAllStringSubmatch(page, -1) {
		if _, err := parseStep(m[1]); err != nil {
			t.Errorf("docs/chaos-reference.md has %q: %v", m[1], err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range specs {
		f.Add(text)
	}
	for _, p := range presets {
		f.Add(p.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(s.String())
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("Parse(%q) prints %q, which is %v, %v", text, s, again, err)
		}
	})
}
