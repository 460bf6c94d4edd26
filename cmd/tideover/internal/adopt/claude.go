package adopt

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// claude reads the records of Claude Code: projects/FOLDER/ID.jsonl in its configuration folder,
// where FOLDER is the path of the session's folder with other characters than letters and digits
// replaced by hyphens.
type claude struct{}

// uuid matches the id of a session of Claude Code or Codex.
var uuid = lazyregexp.New(`^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func (claude) place(home string, env func(string) string) (path, variable string) {
	if dir := env("CLAUDE_CONFIG_DIR"); dir != "" {
		return filepath.Join(dir, "projects"), "CLAUDE_CONFIG_DIR"
	}
	return filepath.Join(home, ".claude", "projects"), ""
}

func (claude) find(place string, since time.Time) ([]record, int, error) {
	return findFiles(place, 1, since, func(name string) string {
		id, ok := strings.CutSuffix(name, ".jsonl")
		if !ok || !uuid.MatchString(id) {
			return "" // such as the record of a subagent
		}
		return id
	})
}

// claudeLine is a line of a record.
type claudeLine struct {
	Type       string    `json:"type"`
	ID         string    `json:"sessionId"`
	Dir        string    `json:"cwd"`
	Version    string    `json:"version"`
	At         time.Time `json:"timestamp"`
	Sidechain  bool      `json:"isSidechain"`
	Meta       bool      `json:"isMeta"`
	Error      bool      `json:"isApiErrorMessage"`
	Subtype    string    `json:"subtype"`
	Permission string    `json:"permissionMode"`
	Message    struct {
		Model   string          `json:"model"`
		Content json.RawMessage `json:"content"` // a string, or a list of parts
	} `json:"message"`
}

// claudeNotes are the types of lines that are no part of the conversation.
var claudeNotes = []string{
	"system", "summary", "file-history-snapshot", "queue-operation", "last-prompt", "ai-title", "custom-title", "agent-name", "agent-color", "tag", "mode",
	"permission-mode", "pr-link", "progress", "attachment", "turn-duration",
}

// claudeCommands are the commands of the user that change nothing in the conversation.
var claudeCommands = []string{"/rate-limit-options", "/exit", "/quit", "/usage", "/status", "/cost", "/upgrade", "/extra-usage", "/login", "/model", "/help"}

// claudeModes are the permission modes that the command that resumes a session sets again.
var claudeModes = []string{"acceptEdits", "auto", "dontAsk", "plan", "bypassPermissions"}

func (claude) read(place string, r record) (e ending, err error) {
	t, err := readText(place, r)
	if err != nil {
		return e, err
	}
	e.id = r.id
	conversation := false
	for _, raw := range t.lines {
		var l claudeLine
		if err := json.Unmarshal(raw, &l); err != nil {
			e.follow("a line that can't be read follows the limit")
			continue
		}
		if l.Dir != "" && isClaudeFolder(filepath.Base(filepath.Dir(r.path)), l.Dir) {
			e.dir = l.Dir
		}
		if l.Permission != "" {
			e.flags = claudeFlags(l.Permission)
		}
		conversation = e.readClaude(&l) || conversation
	}
	switch {
	case !conversation:
		return e, errNoSession
	case !strings.HasPrefix(e.version, "1.") && !strings.HasPrefix(e.version, "2."):
		return e, versionError(e.version)
	}
	return e, nil
}

// readClaude adds a line of the record, and reports whether it is a part of the conversation.
func (e *ending) readClaude(l *claudeLine) bool {
	if l.Type != "user" && l.Type != "assistant" {
		if !slices.Contains(claudeNotes, l.Type) {
			e.follow("an entry of the unknown type " + quote(l.Type) + " follows the limit")
		}
		return false
	}
	if l.Sidechain {
		return false
	}
	e.version = cmp.Or(l.Version, e.version)
	switch {
	case l.ID != e.id:
		e.follow("its record contains another session")
	case l.Type == "assistant" && (l.Error || l.Message.Model == "<synthetic>"):
		e.fail(claudeText(l.Message.Content), l.At)
	case l.Type == "user" && (l.Meta || isClaudeCommand(l.Message.Content)):
	default:
		e.follow(goneOn)
	}
	return true
}

func (claude) resume(e *ending, id string) []string {
	return slices.Concat([]string{"claude", "-p", "Continue."}, e.flags, []string{"--resume", id})
}

// claudeFlags returns the flags that set a permission mode.
func claudeFlags(mode string) []string {
	if !slices.Contains(claudeModes, mode) {
		return nil
	}
	return []string{"--permission-mode", mode}
}

// isClaudeFolder reports whether the records of sessions in dir are in the folder with this name.
// Claude Code cuts a long name, and adds a hash.
func isClaudeFolder(name, dir string) bool {
	const longest = 200
	want := strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' {
			return c
		}
		return '-'
	}, dir)
	return name == want || len(want) > longest && strings.HasPrefix(name, want[:longest])
}

// claudeText returns the text of a message.
func claudeText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(content, &parts) // on an error, the message has no text
	var all []string
	for _, p := range parts {
		all = append(all, p.Text)
	}
	return strings.Join(all, "\n")
}

// isClaudeCommand reports whether the user's message is a command in claudeCommands, or its output.
func isClaudeCommand(content json.RawMessage) bool {
	text := claudeText(content)
	if strings.HasPrefix(text, "<local-command-") {
		return true
	}
	_, rest, ok := strings.Cut(text, "<command-name>")
	name, _, closed := strings.Cut(rest, "</command-name>")
	return ok && closed && strings.HasPrefix(text, "<command-") && slices.Contains(claudeCommands, name)
}
