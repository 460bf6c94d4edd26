package detect

import (
	"fmt"
	"strings"
	"testing"
)

func TestTheSessionIsRead(t *testing.T) {
	t.Parallel()
	const id = "019da1a1-bed9-7a43-88a2-b49d43915021"
	header := "OpenAI Codex v0.150.0\n--------\nworkdir: /src\n\x1b[1msession id:\x1b[0m " + id + "\n--------\n"
	for _, tt := range []struct {
		name, pack, text, id string
		gone                 bool
	}{
		{"codex, header", "codex", header + "user\nx\n", id, false},
		{"codex, the first one counts", "codex", header + "session id: 00000000-0000-4000-8000-000000000000\n", id, false},
		{"codex, event", "codex", `{"type":"thread.started","thread_id":"` + id + `"}` + "\n", id, false},
		{"codex, far below", "codex", strings.Repeat("line\n", 60) + "session id: " + id + "\n", "", false},
		{"codex, prose", "codex", "The session id: " + id + "\n", "", false},
		{"codex, a flag", "codex", `{"type":"thread.started","thread_id":"--dangerously-bypass"}` + "\n", "", false},
		{"codex, nothing", "codex", `{"type":"thread.started"}` + "\n", "", false},
		{"claude, event", "claude-code", `{"type":"system","subtype":"init","session_id":"` + id + `"}` + "\n", id, false},
		{"claude, result", "claude-code", `{"type":"result","is_error":true,"num_turns":1,"session_id":"` + id + `"}`, id, false},
		{"claude, another event", "claude-code", `{"type":"assistant","session_id":"` + id + `"}` + "\n", "", false},
		{"gemini, event", "gemini", `{"type":"init","session_id":"` + id + `"}` + "\n", id, false},
		{"claude, gone", "claude-code", "No conversation found with session ID: " + id, "", true},
		{"claude, gone, as an event", "claude-code", `{"type":"result","is_error":true,"num_turns":0,"session_id":"` + id + `","errors":["No conversation found with session ID: ` + id + `"]}` + "\n", "", true},
		{"claude, long gone", "claude-code", "No conversation found with session ID: " + id + strings.Repeat("\nline", 30) + "\n", "", false},
		{"claude, prose", "claude-code", "It says: no conversation found with session ID 1.\n", "", false},
		{"codex, gone", "codex", "Error: thread/resume: thread/resume failed: no rollout found for thread id " + id + " (code -32600)\n", "", true},
		{"gemini, gone", "gemini", `Error resuming session: Invalid session identifier "` + id + `".` + "\n  Searched for sessions in /tmp.\n", "", true},
		{"generic", "generic", header + "No conversation found with session ID: " + id + "\n", "", false},
	} {
		called := []string{}
		d := New(builtin(t, tt.pack), Options{OnSessionID: func(id string) { called = append(called, id) }})
		_, _ = d.Stream().Write([]byte(tt.text))
		if gone := d.SessionGone(); gone != tt.gone || d.session.id != tt.id {
			t.Errorf("%s: the id is %q and gone %v, want %q and %v", tt.name, d.session.id, gone, tt.id, tt.gone)
		}
		if want := strings.Fields(tt.id); fmt.Sprint(called) != fmt.Sprint(want) {
			t.Errorf("%s: called with %q, want %q", tt.name, called, want)
		}
	}
}

func TestTheSessionOfAPackIsChecked(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"session: {id: [{literals: [abc]}]}":                                                  "session.id[0]: want exactly one of event and line",
		"session: {id: [{line: '^a$', event: {a: b}, literals: [abc]}]}":                      "session.id[0]: want exactly one of event and line",
		"session: {id: [{line: '^session (.*)$', literals: [session]}]}":                      "session.id[0]: line: the group id is missing",
		"session: {id: [{line: '^session (?P<id>.*)$'}]}":                                     "session.id[0]: literals are missing",
		"session: {id: [{line: '^session (?P<id>.*)$', path: a, literals: [session]}]}":       "session.id[0]: path: only allowed for an event",
		"session: {id: [{line: '^(?P<id>', literals: [session]}]}":                            "session.id[0]: line: ",
		"session: {id: [{event: {type: a}, literals: [abc]}]}":                                "session.id[0]: path: ",
		"session: {id: [{event: {type: a}, path: id, literals: [abc], examples: [nothing]}]}": "session.id[0]: examples[0]: the rule does not match",
		"session: {gone: [{line: '^gone$', literals: [gone], examples: [here]}]}":             "session.gone[0]: examples[0]: the rule does not match",
		"session: {gone: [{line: '^{sesame}$', literals: [gone]}]}":                           "{sesame} is unknown",
	} {
		if _, err := Parse("own", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	own, err := Parse("own", []byte("extends: codex\nsession: {id: [{line: '^thread (?P<id>\\w+)$', literals: [thread]}]}\n"))
	if err != nil || !own.StatesSessionID() || builtin(t, "generic").StatesSessionID() {
		t.Fatalf("own pack: %v, %v", own, err)
	}
	for text, want := range map[string]string{"thread abcd\n": "abcd", `{"type":"thread.started","thread_id":"efgh"}` + "\n": "efgh"} {
		d := New(own, Options{})
		if _, _ = d.Stream().Write([]byte(text)); d.session.id != want {
			t.Errorf("%s: the id is %q, want %q", text, d.session.id, want)
		}
	}
}
