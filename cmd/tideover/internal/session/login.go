package session

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// home says where an assistant keeps its configuration and its login.
type home struct {
	variable string   // environment variable with the folder
	below    string   // folder in the variable's folder; "" means that folder itself
	usual    string   // the folder without the variable, in the home folder of the user
	record   string   // file in the folder that names the login; "" if there is none
	beside   bool     // the file of the usual folder is beside it
	login    []string // paths of the fields that name the login
}

// homes has the configuration folders of assistants by their packs.
var homes = map[string]home{
	"claude-code": {
		variable: "CLAUDE_CONFIG_DIR", usual: ".claude",
		record: ".claude.json", beside: true, login: []string{"oauthAccount.accountUuid", "oauthAccount.organizationUuid"},
	},
	"codex":        {variable: "CODEX_HOME", usual: ".codex", record: "auth.json", login: []string{"tokens.account_id"}},
	"gemini":       {variable: "GEMINI_CLI_HOME", below: ".gemini", usual: ".gemini", record: "google_accounts.json", login: []string{"active"}},
	"qwen":         {variable: "QWEN_HOME", usual: ".qwen"},
	"copilot-cli":  {variable: "COPILOT_HOME", usual: ".copilot"},
	"cursor-agent": {variable: "CURSOR_CONFIG_DIR", usual: ".cursor"},
	"opencode":     {variable: "XDG_DATA_HOME", below: "opencode", usual: ".local/share/opencode"},
}

// maxRecord is the size of the largest file that is searched for a login.
const maxRecord = 16 << 20

// PlanAccount sets Login, also of the fallbacks: it depends on the folder in which the assistant keeps
// its login. lookup returns the value of a variable in the environment of the commands; "" if it is not
// set.
func (s *Spec) PlanAccount(lookup func(name string) string) {
	s.Login = loginAccount(s, lookup)
	for i := range s.Fallback {
		f := &s.Fallback[i]
		f.Login = loginAccount(&Spec{Start: f.Start, Dir: s.Dir, Pack: f.Pack}, lookup)
	}
}

// loginAccount returns the account of a session's tool with its login; "" if the tool has its usual
// folder, or one with the same login.
func loginAccount(s *Spec, lookup func(name string) string) string {
	tool := toolAccount(s)
	h, known := homes[tool]
	base := lookup("HOME")
	if !known || base == "" {
		return ""
	}
	folder, usual := h.folder(s, base, lookup), filepath.Join(base, h.usual)
	if folder == "" || realPath(folder) == realPath(usual) {
		return ""
	}
	login := h.loginOf(filepath.Join(folder, h.record))
	usualRecord := filepath.Join(usual, h.record)
	if h.beside {
		usualRecord = filepath.Join(base, h.record)
	}
	if login != "" && login == h.loginOf(usualRecord) {
		return ""
	}
	sum := sha256.Sum256([]byte(cmp.Or(login, realPath(folder))))
	return fmt.Sprintf("%s-%x", tool, sum[:4])
}

// folder returns the configuration folder of a session's assistant; "" if no variable sets it, or if it
// is unknown. base is the home folder of the user.
func (h *home) folder(s *Spec, base string, lookup func(name string) string) string {
	w, _, _ := unwrap(s.Start)
	folder := lookup(h.variable)
	for _, set := range w.env {
		if value, found := strings.CutPrefix(set, h.variable+"="); found {
			folder = value
		}
	}
	rest, inHome := strings.CutPrefix(folder, "~/")
	switch {
	case folder == "" || strings.ContainsAny(folder, "$`"):
		return ""
	case inHome:
		folder = filepath.Join(base, rest)
	case !filepath.IsAbs(folder):
		folder = filepath.Join(append(append([]string{s.Dir}, w.dirs...), folder)...)
	}
	return filepath.Join(folder, h.below)
}

// realPath returns a path without symbolic links; the cleaned path if the folder does not exist.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// loginOf returns the login that a record names; "" if it names none.
func (h *home) loginOf(record string) string {
	info, err := os.Stat(record)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxRecord {
		return ""
	}
	text, err := os.ReadFile(record)
	var fields map[string]any
	if err != nil || json.Unmarshal(text, &fields) != nil {
		return ""
	}
	var login []string
	for _, path := range h.login {
		var value any = fields
		for name := range strings.SplitSeq(path, ".") {
			object, _ := value.(map[string]any)
			value = object[name]
		}
		if text, ok := value.(string); ok && text != "" {
			login = append(login, text)
		}
	}
	return strings.Join(login, " ")
}
