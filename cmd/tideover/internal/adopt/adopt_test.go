package adopt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	claudeID = "11111111-2222-4333-8444-555555555551"
	codexID  = "01a1f623-5f21-7191-acbf-0cdcce947b52"
)

// now is shortly after the recorded sessions have stopped.
var now = time.Date(2026, 11, 19, 23, 40, 0, 0, time.UTC)

// home is a home folder with records of sessions.
type home struct {
	*testing.T
	path string // resolved
	shop string // the folder of the sessions
	open []process
}

func newHome(t *testing.T) *home {
	t.Helper()
	path, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := &home{T: t, path: path, shop: filepath.Join(path, "src", "shop")}
	h.mkdir(h.shop)
	return h
}

func (h *home) mkdir(path string) {
	h.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		h.Fatal(err)
	}
}

// write writes a record that was changed shortly before now.
func (h *home) write(path, text string) {
	h.Helper()
	h.mkdir(filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.Fatal(err)
	}
	if err := os.Chtimes(path, now, now); err != nil {
		h.Fatal(err)
	}
}

// recorded returns a recorded record, with the folder of this home.
func (h *home) recorded(name string) string {
	h.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		h.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "/src/shop", h.shop)
}

// claude returns the path of a record of Claude Code for a session in the shop.
func (h *home) claude(id string) string {
	folder := strings.Map(func(c rune) rune {
		if strings.ContainsRune("/._", c) {
			return '-'
		}
		return c
	}, h.shop)
	return filepath.Join(h.path, ".claude", "projects", folder, id+".jsonl")
}

func (h *home) codex() string {
	return filepath.Join(h.path, ".codex", "sessions", "2026", "11", "19", "rollout-2026-11-19T23-27-55-"+codexID+".jsonl")
}

func (h *home) reader() *Reader {
	return &Reader{
		Home: h.path, Env: func(string) string { return "" },
		processes: func() ([]process, error) { return h.open, nil },
	}
}

func (h *home) find() Found {
	h.Helper()
	found, err := h.reader().Find(now)
	if err != nil {
		h.Fatal(err)
	}
	return found
}

// only returns the only session that is found.
func (h *home) only() Session {
	h.Helper()
	found := h.find()
	if len(found.Sessions) != 1 || len(found.Problems) > 0 {
		h.Fatalf("found %+v", found)
	}
	return found.Sessions[0]
}

// wantNone checks that no session may be adopted.
func (h *home) wantNone(what string) {
	h.Helper()
	for _, s := range h.find().Sessions {
		if s.LeftAlone == "" {
			h.Errorf("%s: %s may be adopted", what, s.ID)
		}
	}
}

func TestRecordedSessionsAreFound(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.write(h.claude(claudeID), h.recorded("claude.jsonl"))
	h.write(h.codex(), h.recorded("codex.jsonl"))
	found := h.find()
	if len(found.Sessions) != 2 || len(found.Problems) > 0 || found.UnknownVersion() != nil {
		t.Fatalf("found %+v", found)
	}
	// Codex names no zone: the time is that of the machine.
	codexReset := time.Date(2026, 11, 20, 0, 27, 0, 0, time.Local)
	claudeReset := time.Date(2026, 11, 20, 0, 27, 0, 0, time.UTC)
	for i, want := range []Session{
		{
			Assistant: "codex", ID: codexID, Dir: h.shop, Record: h.codex(), Reset: codexReset,
			Command: []string{"codex", "exec", "--sandbox", "workspace-write", "resume", codexID, "--skip-git-repo-check", "Continue."},
		},
		{
			Assistant: "claude", ID: claudeID, Dir: h.shop, Record: h.claude(claudeID), Reset: claudeReset,
			Command: []string{"claude", "-p", "Continue.", "--permission-mode", "acceptEdits", "--resume", claudeID},
		},
	} {
		got := found.Sessions[i]
		if got.Assistant != want.Assistant || got.ID != want.ID || got.Dir != want.Dir || got.Record != want.Record || !got.Reset.Equal(want.Reset) ||
			!slices.Equal(got.Command, want.Command) || got.LeftAlone != "" || got.Line == "" {
			t.Errorf("session %d is %+v, want %+v", i, got, want)
		}
		if again, err := h.reader().Check(got); err != nil || again.LeftAlone != "" || !again.Limited.Equal(got.Limited) {
			t.Errorf("checked again: %+v, %v", again, err)
		}
	}
}

func TestASessionThatMayBeOpenIsLeftAlone(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.write(h.claude(claudeID), h.recorded("claude.jsonl"))
	inner := filepath.Join(h.shop, "cmd")
	h.mkdir(inner)
	for _, tt := range []struct {
		name string
		process
		why string
	}{
		{"another assistant", process{assistant: "codex", args: []string{"codex"}, dir: h.shop}, ""},
		{"in another folder", process{assistant: "claude", args: []string{"claude"}, dir: h.path}, ""},
		{"in the folder", process{assistant: "claude", args: []string{"claude"}, dir: h.shop}, "runs in its folder"},
		{"below the folder", process{assistant: "claude", args: []string{"claude"}, dir: inner}, "runs in its folder"},
		{"in an unknown folder", process{assistant: "claude", args: []string{"claude"}}, "the folder of the process is unknown"},
		{"with the id", process{assistant: "claude", args: []string{"claude", "--resume=" + claudeID}, dir: h.path}, "was started with its id"},
		{"with the folder", process{assistant: "claude", args: []string{"claude", "--cd", h.shop}, dir: h.path}, "was started with its folder"},
		{"with the record", process{assistant: "claude", args: []string{"claude"}, dir: h.path, files: []string{h.claude(claudeID)}}, "has its record open"},
		{"that serves all", process{assistant: "claude", args: []string{"claude", "remote-control"}, dir: h.path}, "serves sessions of all folders"},
		{"that Codex leaves running", process{assistant: "claude", args: []string{"/x/app-server-daemon/releases/1/bin/codex", "app-server"}, dir: h.shop}, ""},
	} {
		h.open = []process{tt.process}
		s := h.only()
		if s.Open != (tt.why != "") || !strings.Contains(s.LeftAlone, tt.why) || (s.LeftAlone == "") != (tt.why == "") {
			t.Errorf("a process %s: left alone because %q, want %q", tt.name, s.LeftAlone, tt.why)
		}
	}
}

func TestCommandLinesOfAssistants(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"claude": "claude", "/usr/bin/claude -p x": "claude", "node /usr/bin/codex exec x": "codex", "node --max-old-space-size=4096 /opt/claude": "claude",
		"/bin/sh /home/a/bin/opencode run": "opencode", "/x/node_modules/@anthropic-ai/claude-code/cli.js": "claude",
		"node /x/node_modules/@openai/codex/bin/codex.js": "codex", "/x/opencode-ai/bin/.opencode": "opencode",
		"vi claude": "", "sh -c x claude": "", "node server.js claude": "", "": "",
	} {
		if got := assistantOf(strings.Fields(line)); got != want {
			t.Errorf("%q runs %q, want %q", line, got, want)
		}
	}
}

// line returns a line of a record of Claude Code.
func (h *home) line(kind, more string) string {
	return fmt.Sprintf(`{"type":%q,"cwd":%q,"sessionId":%q,"version":"2.1.197","timestamp":"2026-11-19T23:30:00Z"%s}`+"\n", kind, h.shop, claudeID, more)
}

func TestWhatFollowsALimit(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	record := h.recorded("claude.jsonl")
	user := func(text string) string {
		return h.line("user", `,"message":{"role":"user","content":`+quoteJSON(text)+`}`)
	}
	for _, tt := range []struct{ name, after, why string }{
		{"nothing", "", ""},
		{"a note", h.line("file-history-snapshot", ""), ""},
		{"a subagent", h.line("assistant", `,"isSidechain":true`), ""},
		{"the menu at a limit", user("<command-name>/rate-limit-options</command-name>\n<command-args></command-args>"), "it has gone"}, // it begins with command-message
		{"the menu", user("<command-message>rate-limit-options</command-message>\n<command-name>/rate-limit-options</command-name>"), ""},
		{"the end", user("<command-name>/exit</command-name>") + user("<local-command-stdout>Bye!</local-command-stdout>"), ""},
		{"a caveat", h.line("user", `,"isMeta":true,"message":{"content":"Caveat"}`), ""},
		{"a command of the user", user("<command-message>review</command-message>\n<command-name>/review</command-name>"), goneOn},
		{"a prompt", user("go on"), goneOn},
		{"an answer", h.line("assistant", `,"message":{"model":"claude-opus-4-6","content":[{"type":"text","text":"Yes."}]}`), goneOn},
		{"a compacted conversation", h.line("compact-boundary", ""), `the unknown type "compact-boundary"`},
		{"no JSON", "x\n", "can't be read"},
		{"another session", strings.Replace(h.line("user", ""), claudeID, codexID, 1), "another session"},
	} {
		if tt.name == "the menu at a limit" {
			tt.why = ""
		}
		h.write(h.claude(claudeID), record+tt.after)
		if s := h.only(); !strings.Contains(s.LeftAlone, tt.why) || (s.LeftAlone == "") != (tt.why == "") {
			t.Errorf("%s: left alone because %q, want %q", tt.name, s.LeftAlone, tt.why)
		}
	}
	again := strings.Replace(h.line("assistant", `,"isApiErrorMessage":true,"message":{"content":[{"text":"You've hit your weekly limit · resets Nov 22 at 7pm (UTC)"}]}`), "23:30", "23:35", 1)
	h.write(h.claude(claudeID), record+user("go on")+again)
	if s := h.only(); s.LeftAlone != "" || !s.Reset.Equal(time.Date(2026, 11, 22, 19, 0, 0, 0, time.UTC)) {
		t.Errorf("after another limit: %+v", s)
	}
	h.write(h.claude(claudeID), record+h.line("assistant", `,"isApiErrorMessage":true,"message":{"content":[{"text":"Credit balance is too low"}]}`))
	if found := h.find(); len(found.Sessions) != 0 {
		t.Errorf("no wait helps: %+v", found)
	}
}

func quoteJSON(text string) string { return `"` + strings.ReplaceAll(text, "\n", `\n`) + `"` }

func TestASessionInAnotherFolderIsLeftAlone(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.write(h.claude(claudeID), h.recorded("claude.jsonl"))
	if err := os.Remove(h.shop); err != nil {
		t.Fatal(err)
	}
	if s := h.only(); !strings.Contains(s.LeftAlone, "its folder: ") {
		t.Errorf("the folder is gone: %q", s.LeftAlone)
	}
	other := filepath.Join(filepath.Dir(filepath.Dir(h.claude(claudeID))), "-elsewhere", claudeID+".jsonl")
	h.write(h.claude(claudeID), "")
	h.write(other, h.recorded("claude.jsonl"))
	if s := h.only(); s.LeftAlone != "its record does not name its folder" || s.Dir != "" {
		t.Errorf("%+v", s)
	}
}

// A record that is cut anywhere is adopted only if the limit is its last whole line.
func TestCutRecordsAreLeftAlone(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for path, record := range map[string]string{h.claude(claudeID): h.recorded("claude.jsonl"), h.codex(): h.recorded("codex.jsonl")} {
		limit := max(strings.LastIndex(record, "isApiErrorMessage"), strings.LastIndex(record, "usage_limit_exceeded"))
		for at := 0; at < len(record); at += 1 + len(record)/100 {
			for _, cut := range []int{at, strings.LastIndex(record[:at], "\n") + 1} {
				h.write(path, record[:cut])
				whole := cut > limit && record[cut-1] == '\n'
				for _, s := range h.find().Sessions {
					if s.LeftAlone == "" && !whole {
						t.Fatalf("%s is adopted although it is cut at %d", path, cut)
					}
				}
				h.write(path, record[cut:]) // the beginning is missing
				h.find()
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnUnknownVersionIsNamed(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.write(h.claude(claudeID), strings.ReplaceAll(h.recorded("claude.jsonl"), "2.1.197", "3.0.0"))
	h.write(h.codex(), strings.ReplaceAll(h.recorded("codex.jsonl"), "0.169.0", "1.0.0"))
	found := h.find()
	if len(found.Sessions) != 0 || len(found.Problems) != 2 {
		t.Fatalf("found %+v", found)
	}
	want := h.claude(claudeID) + ": version 3.0.0 is unknown\n" + h.codex() + ": version 1.0.0 is unknown"
	if err := found.UnknownVersion(); err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

func TestRecordsThatCantBeRead(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	outside := filepath.Join(h.path, "elsewhere.jsonl")
	h.write(outside, h.recorded("claude.jsonl"))
	h.mkdir(filepath.Dir(h.claude(claudeID)))
	if err := os.Symlink(outside, h.claude(claudeID)); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Dir(h.claude(claudeID))
	if err := os.Rename(folder, folder+"x"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(folder+"x", folder); err != nil {
		t.Fatal(err)
	}
	if found := h.find(); len(found.Sessions)+len(found.Problems) != 0 {
		t.Errorf("links were followed: %+v", found)
	}
	if _, err := readText(folder+"x", record{path: claudeID + ".jsonl"}); err == nil {
		t.Error("a link was read")
	}
	if err := errors.Join(os.Remove(folder), os.RemoveAll(folder+"x")); err != nil {
		t.Fatal(err)
	}

	h.write(h.claude(claudeID), h.recorded("claude.jsonl"))
	if err := os.Chmod(h.claude(claudeID), 0o606); err != nil {
		t.Fatal(err)
	}
	if found := h.find(); len(found.Sessions) != 0 || len(found.Problems) != 1 || !strings.Contains(found.Problems[0].Problem, "other users can write") {
		t.Errorf("a record that others can change: %+v", found)
	}
	h.mkdir(filepath.Join(folder, codexID+".jsonl"))
	if os.Geteuid() != 0 {
		if err := os.Chmod(h.claude(claudeID), 0); err != nil {
			t.Fatal(err)
		}
		if found := h.find(); len(found.Sessions) != 0 || len(found.Problems) != 1 {
			t.Errorf("a record that can't be read: %+v", found)
		}
	}
}

// Of many records, the newest are read, and the number of the others is known.
func TestManyRecords(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	const count = 10_000
	text := []byte(h.line("user", `,"message":{"content":"x"}`))
	path := func(i int) string { return h.claude(fmt.Sprintf("%08x-2222-4333-8444-555555555551", i)) }
	h.mkdir(filepath.Dir(path(0)))
	for i := range count {
		if err := os.WriteFile(path(i), text, 0o600); err != nil {
			t.Fatal(err)
		}
		at := now.Add(-time.Duration(i) * time.Second)
		if err := os.Chtimes(path(i), at, at); err != nil {
			t.Fatal(err)
		}
	}
	place := filepath.Join(h.path, ".claude", "projects")
	list, more, err := claude{}.find(place, now.Add(-MaxAge))
	if err != nil || len(list) != maxRecords || more != count-maxRecords {
		t.Fatalf("%d records and %d more, %v", len(list), more, err)
	}
	for i, r := range list {
		if filepath.Join(place, r.path) != path(i) {
			t.Fatalf("record %d is %s, want %s", i, r.path, path(i))
		}
	}
	if list, _, err := (claude{}).find(place, now.Add(-10*time.Second)); err != nil || len(list) != 11 {
		t.Errorf("%d records are new, %v; want 11", len(list), err)
	}
	if found := h.find(); found.NotRead != count-maxRecords || len(found.Sessions) != 0 {
		t.Errorf("found %d sessions, not read %d", len(found.Sessions), found.NotRead)
	}
}

// Of a large record, only the end is read.
func TestALargeRecord(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	line := h.line("user", `,"message":{"content":"`+strings.Repeat("x", 1000)+`"}`)
	h.write(h.claude(claudeID), strings.Repeat(line, 4*maxTail/len(line))+h.recorded("claude.jsonl"))
	if s := h.only(); s.LeftAlone != "" {
		t.Errorf("left alone: %s", s.LeftAlone)
	}
	text, err := readText(filepath.Dir(h.claude(claudeID)), record{path: claudeID + ".jsonl"})
	if read := len(bytes.Join(text.lines, nil)); err != nil || read > maxTail {
		t.Errorf("%d bytes were read, %v", read, err)
	}
}

// A session whose record is being written is never adopted.
func TestARecordThatChangesWhileItIsRead(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.write(h.claude(claudeID), h.recorded("claude.jsonl")+h.line("user", ""))
	f, err := os.OpenFile(h.claude(claudeID), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		line := []byte(h.line("assistant", `,"message":{"model":"m","content":[]}`))
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				_, _ = f.Write(line[:len(line)/2])
				_, _ = f.Write(line[len(line)/2:])
			}
		}
	}()
	for range 20 {
		h.wantNone("a record that changes")
	}
	close(stop)
	<-stopped
}

func TestOtherRecordsOfCodex(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	record := h.recorded("codex.jsonl")
	i := strings.Index(record, `,"error":{"message"`)
	j := i + strings.Index(record[i:], `},"started_at"`) + 1
	early := record[:i] + record[j:] // earlier versions stored no error
	h.write(h.codex(), early)
	if s := h.only(); s.LeftAlone != "" || s.Reset.Unix() != 1795134460 {
		t.Errorf("without the error: %+v", s)
	}
	h.write(h.codex(), strings.Replace(early, `"used_percent":100.0`, `"used_percent":99.0`, 1))
	if found := h.find(); len(found.Sessions) != 0 {
		t.Errorf("a turn that failed for another reason: %+v", found)
	}
	h.write(h.codex(), strings.Replace(early, `"last_agent_message":null`, `"last_agent_message":"Done."`, 1))
	if found := h.find(); len(found.Sessions) != 0 {
		t.Errorf("a turn that used the rest of the quota: %+v", found)
	}
	h.write(h.codex(), record+`{"timestamp":"2026-11-19T23:30:00Z","type":"event_msg","payload":{"type":"task_started"}}`+"\n")
	if s := h.only(); s.LeftAlone != goneOn {
		t.Errorf("a new turn: %q", s.LeftAlone)
	}
	h.write(h.codex(), record+`{"timestamp":"2026-11-19T23:30:00Z","type":"event_msg","payload":{"type":"rolled_back"}}`+"\n")
	if s := h.only(); !strings.Contains(s.LeftAlone, `unknown type "rolled_back"`) {
		t.Errorf("an unknown event: %q", s.LeftAlone)
	}
	for policy, want := range map[string]string{
		`"approval_policy":"never","sandbox_policy":{"type":"danger-full-access"}`:      "danger-full-access",
		`"approval_policy":"on-request","sandbox_policy":{"type":"danger-full-access"}`: "",
		`"approval_policy":"on-request","sandbox_policy":{"mode":"read-only"}`:          "read-only",
		`"approval_policy":"on-request","sandbox_policy":{"type":"--yolo"}`:             "",
	} {
		h.write(h.codex(), early[:strings.LastIndex(early, `{"timestamp":"2026-11-19T23:27:56.222Z"`)]+`{"type":"turn_context","payload":{"cwd":"`+h.shop+`",`+policy+`}}`+"\n"+
			early[strings.LastIndex(early, `{"timestamp":"2026-11-19T23:27:56.222Z"`):])
		if s := h.only(); strings.Join(s.Command[2:4], " ") != strings.TrimSpace("--sandbox "+want) && want != "" || want == "" && s.Command[2] != "resume" {
			t.Errorf("%s: %q", policy, s.Command)
		}
	}
}

// No record makes the reader panic, and no session is adopted whose last entry is a prompt.
func FuzzRecords(f *testing.F) {
	for _, name := range []string{"claude.jsonl", "codex.jsonl"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		h := newHome(t)
		h.write(h.claude(claudeID), string(text)+"\n"+h.line("user", `,"message":{"content":"go on"}`))
		h.write(h.codex(), string(text)+"\n"+`{"type":"event_msg","payload":{"type":"task_started"}}`+"\n")
		h.wantNone("a prompt follows")
	})
}
