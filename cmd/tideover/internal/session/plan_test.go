package session

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testfile"
)

// planned parses a command line with shell quotes and plans its resume command.
func planned(t *testing.T, line string) *Spec {
	t.Helper()
	argv, err := Split(line)
	if err != nil {
		t.Fatal(err)
	}
	s := &Spec{Name: "test", Start: argv, Pack: CommandPack(argv)}
	s.PlanResume(true)
	return s
}

func TestHowAssistantsAreResumed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ line, start, resume, latest, id string }{
		{
			"claude -p Work", "claude -p Work --session-id {{.Session}}", "claude -p Continue. --resume {{.Session}}", "", "",
		}, {
			"/opt/claude --model opus -p Work --verbose", "/opt/claude --model opus -p Work --verbose --session-id {{.Session}}",
			"/opt/claude --model opus -p Continue. --verbose --resume {{.Session}}", "", "",
		}, {
			"claude -p --output-format stream-json --verbose Work", "claude -p --output-format stream-json --verbose Work --session-id {{.Session}}",
			"claude -p --output-format stream-json --verbose Continue. --resume {{.Session}}", "", "",
		}, {
			"claude Work -p --allowedTools Bash Edit", "claude Work -p --allowedTools Bash Edit --session-id {{.Session}}",
			"claude Continue. -p --allowedTools Bash Edit --resume {{.Session}}", "", "",
		}, {
			"claude -p --add-dir=../lib -- -v", "claude -p --add-dir=../lib --session-id {{.Session}} -- -v",
			"claude -p --add-dir=../lib --resume {{.Session}} -- Continue.", "", "",
		}, {
			"claude -p", "claude -p --session-id {{.Session}}", "claude -p Continue. --resume {{.Session}}", "", "",
		}, {
			"claude -p --model opus", "claude -p --model opus --session-id {{.Session}}", "claude -p Continue. --model opus --resume {{.Session}}", "", "",
		}, {
			"claude --continue -p Work", "claude --continue -p Work --fork-session --session-id {{.Session}}", "claude -p Continue. --resume {{.Session}}", "", "",
		}, {
			"claude -pc Work", "claude -p -c Work --fork-session --session-id {{.Session}}", "claude -p Continue. --resume {{.Session}}", "", "",
		}, {
			"claude -c -p Work --output-format stream-json", "claude -c -p Work --output-format stream-json",
			"claude -p Continue. --output-format stream-json --resume {{.Session}}", "claude -c -p Continue. --output-format stream-json", "",
		}, {
			"claude -p Work --session-id 0b1a", "claude -p Work --session-id {{.Session}}", "claude -p Continue. --resume {{.Session}}", "", "0b1a",
		}, {
			"claude -p Work --resume 0b1a", "claude -p Work --resume 0b1a", "claude -p Continue. --resume {{.Session}}", "", "0b1a",
		}, {
			"claude -p Work -r 0b1a --fork-session", "claude -p Work -r 0b1a --fork-session --session-id {{.Session}}", "claude -p Continue. --resume {{.Session}}", "", "",
		}, {
			"codex exec Work", "codex exec Work", "codex exec resume {{.Session}} Continue.", "codex exec resume --last Continue.", "",
		}, {
			"codex exec --json --full-auto Work", "codex exec --json --full-auto Work", "codex exec resume {{.Session}} --json --full-auto Continue.",
			"codex exec resume --last --json --full-auto Continue.", "",
		}, {
			"codex -m o3 e -C lib -s read-only --config a=b -i a.png -- Work", "codex -m o3 e -C lib -s read-only --config a=b -i a.png -- Work",
			"codex -m o3 e -C lib -s read-only resume {{.Session}} --config a=b Continue.", "codex -m o3 e -C lib -s read-only resume --last --config a=b Continue.", "",
		}, {
			"codex exec resume 0b1a Work", "codex exec resume 0b1a Work", "codex exec resume {{.Session}} Continue.", "", "0b1a",
		}, {
			"codex exec resume --last Work", "codex exec resume --last Work", "codex exec resume {{.Session}} Continue.", "codex exec resume --last Continue.", "",
		}, {
			"gemini -p Work", "gemini -p Work --session-id {{.Session}}", "gemini -p Continue. --resume {{.Session}}", "", "",
		}, {
			"gemini --yolo --prompt=Work", "gemini --yolo --prompt=Work --session-id {{.Session}}", "gemini --yolo --prompt Continue. --resume {{.Session}}", "", "",
		}, {
			"gemini -y", "gemini -y --session-id {{.Session}}", "gemini -y -p Continue. --resume {{.Session}}", "", "",
		}, {
			"gemini --resume latest Work", "gemini --resume latest Work", "gemini Continue. --resume {{.Session}}", "gemini --resume latest Continue.", "",
		}, {
			"sh -c 'claude -p x'", "sh -c claude -p x --session-id '{{.Session}}'", "sh -c claude -p Continue. --resume '{{.Session}}'", "", "",
		}, {
			`bash -lc 'A="b c" exec codex exec "do it"'`, `bash -lc A="b c" exec codex exec "do it"`,
			`bash -lc A='b c' exec codex exec resume '{{.Session}}' Continue.`, `bash -lc A='b c' exec codex exec resume --last Continue.`, "",
		}, {
			"env A=b claude -p x", "env A=b claude -p x --session-id {{.Session}}", "env A=b claude -p Continue. --resume {{.Session}}", "", "",
		}, {
			"claude --sesame -p x", "claude --sesame -p x --session-id {{.Session}}", "claude --sesame -p Continue. --resume {{.Session}}", "", "",
		}, {
			"claude --sesame=street -p x", "claude --sesame=street -p x --session-id {{.Session}}", "claude --sesame=street -p Continue. --resume {{.Session}}", "", "",
		}, {
			"sh -c 'cd ~/lib && claude -p x'", "sh -c cd ~/lib && claude -p x --session-id '{{.Session}}'", "sh -c cd ~/lib && claude -p Continue. --resume '{{.Session}}'", "", "",
		}, {
			`sh -c 'cd "a b" && A=c nice timeout 5h claude -p x'`, `sh -c cd "a b" && A=c nice timeout 5h claude -p x --session-id '{{.Session}}'`,
			`sh -c cd "a b" && A=c nice timeout 5h claude -p Continue. --resume '{{.Session}}'`, "", "",
		}, {
			"timeout -k 10 5h claude -p x", "timeout -k 10 5h claude -p x --session-id {{.Session}}", "timeout -k 10 5h claude -p Continue. --resume {{.Session}}", "", "",
		}, {
			"nohup nice -n 5 stdbuf -oL env -u A caffeinate -i claude -p x", "nohup nice -n 5 stdbuf -oL env -u A caffeinate -i claude -p x --session-id {{.Session}}",
			"nohup nice -n 5 stdbuf -oL env -u A caffeinate -i claude -p Continue. --resume {{.Session}}", "", "",
		}, {
			"npx -y @anthropic-ai/claude-code@latest -p x", "npx -y @anthropic-ai/claude-code@latest -p x --session-id {{.Session}}",
			"npx -y @anthropic-ai/claude-code@latest -p Continue. --resume {{.Session}}", "", "",
		}, {
			"npx -p @openai/codex codex exec x", "npx -p @openai/codex codex exec x", "npx -p @openai/codex codex exec resume {{.Session}} Continue.",
			"npx -p @openai/codex codex exec resume --last Continue.", "",
		}, {
			"pnpm dlx @google/gemini-cli -p x", "pnpm dlx @google/gemini-cli -p x --session-id {{.Session}}", "pnpm dlx @google/gemini-cli -p Continue. --resume {{.Session}}", "", "",
		}, {
			"bunx --bun opencode-ai run --model a/b fix it", "bunx --bun opencode-ai run --model a/b fix it",
			"bunx --bun opencode-ai run --model a/b Continue. --session {{.Session}}", "bunx --bun opencode-ai run --model a/b Continue. --continue", "",
		}, {
			"opencode run -s ses_1234 --file a.png -- x", "opencode run -s ses_1234 --file a.png -- x", "opencode run --session {{.Session}} -- Continue.", "", "ses_1234",
		}, {
			"opencode run -c x", "opencode run -c x", "opencode run Continue. --session {{.Session}}", "opencode run -c Continue.", "",
		}, {
			"copilot -p x --allow-all-tools --allow-tool a b", "copilot -p x --allow-all-tools --allow-tool a b --session-id {{.Session}}",
			"copilot -p Continue. --allow-all-tools --allow-tool a b --resume {{.Session}}", "", "",
		}, {
			"qwen --yolo x", "qwen --yolo x --session-id {{.Session}}", "qwen --yolo Continue. --resume {{.Session}}", "", "",
		}, {
			"cursor-agent -p --force x", "cursor-agent -p --force x", "cursor-agent -p --force Continue. --resume {{.Session}}", "cursor-agent -p --force Continue. --continue", "",
		}, {
			"cursor agent -p --resume=0b1a-2 x", "cursor agent -p --resume=0b1a-2 x", "cursor agent -p Continue. --resume {{.Session}}", "", "0b1a-2",
		},
	} {
		s := planned(t, tt.line)
		if got := strings.Join(s.Resume, " "); got != tt.resume || s.NoResume != "" {
			t.Errorf("%s is resumed by %q (%s), want %q", tt.line, got, s.NoResume, tt.resume)
			continue
		}
		start := strings.Join(s.Start, " ")
		if strings.Contains(tt.line, "bash") {
			tt.start = "bash -lc A='b c' exec codex exec 'do it'"
		}
		if latest := strings.Join(s.ResumeLatest, " "); start != tt.start || latest != tt.latest || s.SessionID != tt.id {
			t.Errorf("%s is started by %q, and without an id resumed by %q; its id is %q; want %q, %q and %q", tt.line, start, latest, s.SessionID, tt.start, tt.latest, tt.id)
		}
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", tt.line, err)
		}
	}
}

func TestWhatCannotBeResumed(t *testing.T) {
	t.Parallel()
	for line, why := range map[string]string{
		"claude -p x --sesame":                       "the command of claude: the flag --sesame is unknown",
		"claude -p x --model":                        "the flag --model has no value",
		"claude -p x y":                              "more than one prompt",
		"claude -p x --no-session-persistence":       "stores no session",
		"claude -p --input-format stream-json":       "from a stream",
		"claude -p x --resume":                       "asks the user for a session",
		"claude -p x --worktree w":                   "the flag --worktree is not supported",
		"codex x":                                    "it is interactive",
		"codex exec --ephemeral x":                   "stores no session",
		"codex exec review --base main":              "the flag --base is unknown",
		"codex exec --sesame x":                      "the flag --sesame is unknown",
		"codex exec x y":                             "more than one prompt",
		"gemini -p x --worktree w":                   "the flag --worktree is not supported",
		"gemini -p x y":                              "more than one prompt",
		"aider --message x":                          "how aider resumes a session is unknown",
		`sh -c 'claude -p "$PROMPT"'`:                "only a plain call is supported",
		`sh -c 'claude -p $(cat TODO.md)'`:           "only a plain call is supported",
		`sh -c 'while ! claude -p x; do date; done'`: "only a plain call is supported",
		`sh -c 'claude -p "$1"' sh x`:                "only a plain call is supported",
		"claude -p --sesame street":                  `the flag --sesame is unknown, so "street" may be its value`,
		"claude -z -p x":                             "the flag -z is unknown",
		"sh -c 'cd lib; claude -p x'":                "only a plain call is supported",
		"sh -c 'cd $(pwd) && claude -p x'":           "only a plain call is supported",
		"sudo -u me claude -p x":                     "only a plain call is supported",
		"timeout --sesame 5h claude -p x":            "only a plain call is supported",
		"npx -c 'claude -p x' claude":                "only a plain call is supported",
		"opencode run --fork -s ses_1 x":             "the flag --fork is not supported",
		"copilot --continue -p x":                    "does not find the session id in the output of copilot",
		"copilot -p x --connect":                     "the flag --connect is not supported",
	} {
		s := planned(t, line)
		if !strings.Contains(s.NoResume, why) || len(s.Resume) > 0 || !slices.Equal(s.Start, s.typed) {
			t.Errorf("%s can't be resumed because %q, want %q; it is resumed by %q", line, s.NoResume, why, s.Resume)
		}
		if text := s.CannotResume(); !strings.Contains(text, "set resume") {
			t.Errorf("%s: %q", line, text)
		}
		if s.Restart = true; s.CannotResume() != "" {
			t.Errorf("%s: with restart, %q", line, s.CannotResume())
		}
		if s.Pack == "generic" {
			t.Errorf("%s has the pack generic", line)
		}
	}
	s := &Spec{Start: []string{"codex", "exec", "x"}, Pack: "generic"}
	if s.PlanResume(false); !strings.Contains(s.NoResume, "the pack generic does not find the session id in the output of codex") {
		t.Errorf("with a pack that does not know the id: %q", s.NoResume)
	}
}

// Commands that are not assistants, or have no prompt, are run again unchanged.
func TestWhatIsRunAgain(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"make test", "claude", "claude mcp list", "claude --verbose", "codex", "codex login", "aider", "other -p x", "opencode", "opencode serve", "cursor-agent x", "qwen mcp list", "npx vitest", "sh -c 'make && make test'",
		"sh -c 'echo claude -p x'", "sh build.sh claude", "./claude.sh -p x", "env A=b make", "nice make",
	} {
		s := planned(t, line)
		if !s.RunsAgain() || !slices.Equal(s.Start, s.typed) {
			t.Errorf("%s: resumed by %q, started by %q, %s", line, s.Resume, s.Start, s.NoResume)
		}
	}
	s := &Spec{Start: []string{"gemini", "--yolo"}, Pack: "gemini"}
	if s.PlanResume(false); !s.RunsAgain() {
		t.Errorf("gemini without a prompt: %q, %s", s.Resume, s.NoResume)
	}
}

func TestSessionsThatShareAFolder(t *testing.T) {
	t.Parallel()
	s := &Spec{Start: []string{"codex", "exec", "-C", "lib", "x"}, Dir: "/src"}
	for _, tt := range []struct {
		command string
		dir     string
		want    bool
	}{
		{"codex exec y", "/src/lib", true},
		{"sh -c 'codex exec -C /src/lib y'", "/", true},
		{"codex exec y", "/src", false},
		{"claude -p y", "/src/lib", false},
		{"make", "/src/lib", false},
		{"sh -c 'cd lib && codex exec y'", "/src", true},
		{"env -C /src/lib codex exec y", "/", true},
	} {
		argv, err := Split(tt.command)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.SharesFolder([]Command{{argv, tt.dir}}); got != tt.want {
			t.Errorf("%s in %s shares the folder: %v, want %v", tt.command, tt.dir, got, tt.want)
		}
	}
}

// An earlier release derived another start command from the same command of the user.
func TestTheSameWorkOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	s := planned(t, "claude -p --verbose x")
	s.Dir, s.Stdin = "/src", "prompt"
	for input, want := range map[string]bool{
		`{"start":["claude","-p","--verbose","x"],"dir":"/src"}`:                               true,
		`{"start":["claude","-p","--verbose","x","--session-id","{{.Session}}"],"dir":"/src"}`: true,
		`{"start":["anything"],"command":["claude","-p","--verbose","x"],"dir":"/src"}`:        true,
		`{"start":["claude","-p","--verbose","y"],"dir":"/src"}`:                               false,
		`{"start":["claude","-p","--verbose","x"],"dir":"/lib"}`:                               false,
		`{"start":["claude","-p","--verbose","x"],"dir":"/src","prompt":"0123456789abcdef"}`:   false,
	} {
		if _, same := s.Same([]byte(input)); same != want {
			t.Errorf("Same(%s) = %v", input, same)
		}
	}
}

func TestWhatIsAScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testfile.WriteScript(t, filepath.Join(dir, "night.sh"), "#!/bin/sh\nclaude -p Work\n")
	if err := os.WriteFile(filepath.Join(dir, "program"), []byte("\x7fELF"), 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	for line, want := range map[string]bool{
		"./night.sh": true, "night.sh x": true, "nice " + dir + "/night.sh": false, "bash night.sh": true, "bash -ic 'cl x'": true, "zsh -lic cl": true,
		"./program": false, "./missing": false, "sh -c make": false, "claude mcp list": false,
	} {
		argv, err := Split(line)
		if err != nil {
			t.Fatal(err)
		}
		s := &Spec{Name: "night", Start: argv, Dir: dir, Pack: "generic"}
		s.PlanResume(false)
		if got := s.ScriptNote(); (got != "") != want {
			t.Errorf("%s: %q", line, got)
		}
		if s.Restart = true; s.ScriptNote() != "" {
			t.Errorf("%s with restart: %q", line, s.ScriptNote())
		}
	}
}
