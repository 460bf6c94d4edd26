//go:build unix

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

const detectLog = "Working.\n" +
	"The test covers \"5-hour limit reached ∙ resets 3am\" too.\n" +
	"529 Overloaded · Retrying in 4s · attempt 6/10\n" +
	"\x1b[31m⎿ 5-hour limit reached ∙ resets 3pm (UTC)\x1b[0m\n"

func logFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "session.log")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestDetect(t *testing.T) {
	t.Parallel()
	at := []string{"detect", "--at", "2026-11-15T12:00:00Z"}
	day := time.Date(2026, 11, 15, 15, 0, 0, 0, time.UTC).Local().Format("2006-01-02 ") // the local date at 3pm UTC
	for name, tc := range map[string]struct {
		args []string
		log  string
		want []string
	}{
		"a limit": {nil, detectLog, []string{
			"rate-limit until " + day, " (in 3h)\n", "line 4: 5-hour limit reached · resets 3pm (UTC)\n",
			`rule limit of pack generic, evidence: line; time parsed from "3pm (UTC)" as moment`,
		}},
		"an explanation": {[]string{"--explain", "--pack", "claude-code"}, detectLog, []string{
			"LINE  RULE", "decoy: position: prose", "alive: the program continues", "decides",
		}},
		"no explanation without words":  {[]string{"--explain"}, "done\n", []string{"no line contains a phrase of any rule"}},
		"a pack that knows only a part": {[]string{"--pack", "aider", "--exit", "1"}, "529 Overloaded · Retrying in 4s · attempt 6/10\n", []string{"overloaded\n", "the program was retrying"}},
		"a limit that has passed":       {nil, "limit will reset at 2026-11-15 11:59:00Z\n", []string{"(now)"}},
		"a limit without a time":        {nil, "429 Too Many Requests\n", []string{"rate-limit; no end is stated"}},
		"a time that can't be":          {nil, "retry after 9999 days\n", []string{`stated time "9999 days" is not used`}},
		"a wait of the rule":            {nil, `[API Error: {"error":{"code":429,"quotaId":"XPerMinute"}}]`, []string{"(in 1m)", "the rule sets the wait"}},
		"no credits":                    {nil, "Credit balance is too low\n", []string{"terminal; waiting does not help"}},
		"an exit code with a meaning":   {[]string{"--pack", "gemini", "--exit", "41"}, "", []string{"terminal", "not logged in"}},
		"an exit code without a pack":   {[]string{"--exit", "41"}, "", []string{"crashed", "from the exit code"}},
		"the owner":                     {[]string{"--exit", "130"}, "x\n", []string{"user-exit"}},
		"a status before success":       {[]string{"--exit", "0"}, "429 Too Many Requests\nPASS\n", []string{"completed"}},
		"a header of something else":    {nil, "< retry-after: 5\nfixed it\n5-hour limit reached · resets 3pm (UTC)\n", []string{"(in 3h)", "rule limit of pack generic"}},
		"success":                       {[]string{"--exit", "0"}, "done\n", []string{"completed"}},
		"nothing known":                 {nil, "x\n", []string{"unknown", "the exit code is unknown"}},
		"a terminal's controls in text": {[]string{"--explain"}, "Retry-After: x\u202ey\n", []string{"Retry-After: xy"}},
	} {
		args := append(append([]string{}, at...), append(tc.args, logFile(t, tc.log))...)
		got := clitest.Run(t, args...)
		clitest.WantCode(t, got, 0)
		for _, part := range tc.want {
			clitest.WantIn(t, name, got.Out, part)
		}
	}
}

func TestDetectReadsStandardInput(t *testing.T) {
	t.Parallel()
	cmd, _ := clitest.Command(t, "detect", "--json", "--explain", "--at", "2026-11-15T12:00:00Z", "-")
	cmd.Stdin = strings.NewReader(detectLog)
	out := clitest.Finish(t, cmd)
	clitest.WantCode(t, out, 0)
	var got struct {
		Reason   string           `json:"reason"`
		Until    time.Time        `json:"until"`
		Wait     time.Duration    `json:"wait_ns"`
		Pack     string           `json:"pack"`
		Number   int              `json:"number"`
		Findings []detect.Finding `json:"findings"`
	}
	if err := json.Unmarshal([]byte(out.Out), &got); err != nil {
		t.Fatalf("%v: %s", err, out.Out)
	}
	if got.Reason != "rate-limit" || !got.Until.Equal(time.Date(2026, 11, 15, 15, 0, 0, 0, time.UTC)) || got.Wait != 3*time.Hour ||
		got.Pack != "generic" || got.Number != 4 || len(got.Findings) != 3 {
		t.Errorf("got %+v", got)
	}
}

func TestDetectRefuses(t *testing.T) {
	t.Parallel()
	log := logFile(t, detectLog)
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"an unknown pack":    {[]string{"--pack", "claude", log}, `--pack: pack "claude" is unknown (did you mean "claude-code"?); the packs are claude-code, codex`},
		"a missing file":     {[]string{log + "x"}, "no such file"},
		"a folder":           {[]string{t.TempDir()}, "is a directory"},
		"no file":            {nil, "accepts 1 arg"},
		"a bad time":         {[]string{"--at", "noon", log}, `--at: "noon" is not a time`},
		"a bad exit code":    {[]string{"--exit", "300", log}, "--exit: 300 is not an exit code"},
		"a negative code":    {[]string{"--exit", "-1", log}, "--exit: -1 is not an exit code"},
		"a flag without use": {[]string{"--packs", log}, "unknown flag"},
	} {
		got := clitest.Run(t, append([]string{"detect"}, tc.args...)...)
		clitest.WantCode(t, got, CodeOwn)
		clitest.WantIn(t, name, got.Stderr, tc.want)
	}
}

// detect uses a pack in a file, so that users can test a pack before they configure it.
func TestDetectWithAPackOfOnesOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const rules = "{description: Ours., extends: generic, rules: [{id: tired, line: '^the oracle is tired; back in {duration}{end}', literals: [oracle], reason: rate-limit}]}\n"
	log := write("session.log", "The oracle is tired; back in 2 hours.\n")
	pack, other := write("delphi.yaml", rules), write("ours.yaml", "name: dodona\n"+"extends: generic\n")
	cfg := write("tideover.yaml", "version: 1\ndetect:\n  pythia: "+rules)
	bad := write("bad.yaml", "version: 1\ndetect:\n  pythia: {rules: [{id: a, reson: terminal}]}\n")
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"a file":                                  {[]string{"--pack", pack}, 0, "rule tired of pack delphi, evidence: line"},
		"a file with another name":                {[]string{"--pack", other}, 0, "unknown"},
		"one of the configuration":                {[]string{"-c", cfg, "--pack", "pythia"}, 0, "rule tired of pack pythia, evidence: line"},
		"any, with a configuration":               {[]string{"--config", cfg}, 0, "rule tired of pack pythia, evidence: line"},
		"one that is built in":                    {[]string{"-c", cfg, "--pack", "codex"}, 0, "unknown"},
		"one that neither has":                    {[]string{"-c", cfg, "--pack", "pithia"}, CodeOwn, `--pack: pack "pithia" is unknown; the packs are claude-code, codex, gemini, qwen, agy, copilot-cli, cursor-agent, opencode, aider, generic; the configuration has pythia`},
		"no such file":                            {[]string{"--pack", "./none.yaml"}, CodeOwn, "--pack: open ./none.yaml: no such file"},
		"no such configuration":                   {[]string{"-c", dir + "/none", "--pack", "pythia"}, CodeOwn, "reading the configuration"},
		"a mistake in the configuration":          {[]string{"-c", bad}, CodeOwn, `rules[0].reson: unknown key: did you mean "reason"?`},
		"a mistake, and a pack that is fine":      {[]string{"-c", bad, "--pack", "codex"}, CodeOwn, "reading the configuration"},
		"a file that is no pack":                  {[]string{"--pack", cfg}, CodeOwn, "unknown field"},
		"a pack that is a folder":                 {[]string{"--pack", dir + "/"}, CodeOwn, "is a directory"},
		"a file, with an invalid configuration":   {[]string{"-c", bad, "--pack", pack}, 0, "rule tired of pack delphi"},
		"built in, with an invalid configuration": {[]string{"--pack", "codex"}, 0, "unknown"},
	} {
		got := clitest.Run(t, append(append([]string{"detect"}, tc.args...), log)...)
		clitest.WantCode(t, got, tc.code)
		clitest.WantIn(t, name, got.Out+got.Stderr, tc.want)
	}
	cmd, _ := clitest.Command(t, "detect", log)
	cmd.Env = append(cmd.Env, "TIDEOVER_CONFIG="+bad)
	got := clitest.Finish(t, cmd)
	clitest.WantCode(t, got, 0)
	clitest.WantIn(t, "a configuration that was not asked for", got.Stderr, "the packs of the configuration are not used: ")
	cmd, _ = clitest.Command(t, "detect", log, "--json")
	cmd.Env = append(cmd.Env, "TIDEOVER_CONFIG="+bad)
	got = clitest.Finish(t, cmd)
	clitest.WantCode(t, got, 0)
	var warned struct{ Warning struct{ Message string } }
	if err := json.Unmarshal([]byte(got.Stderr), &warned); err != nil || !strings.Contains(warned.Warning.Message, "are not used: ") {
		t.Errorf("with --json, standard error is not an object: %v\n%s", err, got.Stderr)
	}
}

func TestDetectCompletesPacks(t *testing.T) {
	t.Parallel()
	cfg := filepath.Join(t.TempDir(), "tideover.yaml")
	if err := os.WriteFile(cfg, []byte("version: 1\ndetect: {pythia: {description: Ours., extends: codex}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := clitest.Run(t, "__complete", "detect", "--config", cfg, "--pack", "")
	for _, name := range append(detect.Names(), "pythia") {
		clitest.WantIn(t, "completion", got.Out, name+"\t")
	}
}
