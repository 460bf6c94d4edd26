package adopt

import (
	"cmp"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// codex reads the records of Codex: sessions/YYYY/MM/DD/rollout-TIME-ID.jsonl in its folder.
type codex struct{}

func (codex) place(home string, env func(string) string) (path, variable string) {
	if dir := env("CODEX_HOME"); dir != "" {
		return filepath.Join(dir, "sessions"), "CODEX_HOME"
	}
	return filepath.Join(home, ".codex", "sessions"), ""
}

func (codex) find(place string, since time.Time) ([]record, int, error) {
	return findFiles(place, 3, since, func(name string) string {
		name, ok := strings.CutSuffix(name, ".jsonl")
		if !ok || !strings.HasPrefix(name, "rollout-") || len(name) < 36 || !uuid.MatchString(name[len(name)-36:]) {
			return ""
		}
		return name[len(name)-36:]
	})
}

// codexLine is a line of a record. The fields of all payloads are together.
type codexLine struct {
	At      time.Time `json:"timestamp"`
	Type    string    `json:"type"`
	Payload struct {
		Type    string `json:"type"`
		ID      string `json:"id"`
		Dir     string `json:"cwd"`
		Version string `json:"cli_version"`
		Role    string `json:"role"`

		Answer string `json:"last_agent_message"` // of a turn that has ended
		Error  struct {
			Message string `json:"message"`
		} `json:"error"` // of a turn that has failed; earlier versions do not store it

		Approval string `json:"approval_policy"`
		Sandbox  struct {
			Type string `json:"type"`
			Mode string `json:"mode"` // of earlier versions
		} `json:"sandbox_policy"`

		Limits codexLimits `json:"rate_limits"`
	} `json:"payload"`
}

// codexLimits is what the API reports about the windows of a plan.
type codexLimits struct {
	Primary   codexWindow `json:"primary"`
	Secondary codexWindow `json:"secondary"`
}

type codexWindow struct {
	Used   float64 `json:"used_percent"`
	Resets int64   `json:"resets_at"` // Unix seconds

}

// message returns the error of the API that says that a window is used up, in a form that the rules
// of detection know; "" if none is.
func (l *codexLimits) message() string {
	var last int64
	used := false
	for _, w := range []codexWindow{l.Primary, l.Secondary} {
		if w.Used >= 100 {
			used, last = true, max(last, w.Resets)
		}
	}
	switch {
	case !used:
		return ""
	case last == 0:
		return `{"type":"usage_limit_reached"}`
	}
	return `{"type":"usage_limit_reached","resets_at":` + strconv.FormatInt(last, 10) + "}"
}

func (codex) read(place string, r record) (e ending, err error) {
	t, err := readText(place, r)
	if err != nil {
		return e, err
	}
	var head codexLine
	if err := json.Unmarshal(t.first, &head); err != nil || head.Type != "session_meta" {
		return e, errors.New("its first line does not describe a session")
	}
	e.id, e.dir, e.version = head.Payload.ID, head.Payload.Dir, head.Payload.Version
	switch {
	case !strings.HasPrefix(e.version, "0."):
		return e, versionError(e.version)
	case e.id != r.id:
		return e, errors.New("it contains another session than its name says")
	}
	used := "" // what the last line about the quota says
	for _, raw := range t.lines {
		var l codexLine
		if err := json.Unmarshal(raw, &l); err != nil {
			e.follow("a line that can't be read follows the limit")
			continue
		}
		if l.Type == "event_msg" && l.Payload.Type == "token_count" {
			used = l.Payload.Limits.message()
		}
		e.readCodex(&l, used)
	}
	return e, nil
}

// codexNotes are the types of lines, and of events, that are no part of the conversation.
var codexNotes = []string{
	"session_meta", "compacted", "turn_context", "world_state", "token_usage_record",
	"token_count", "thread_settings_applied", "thread_name_updated",
}

// readCodex adds a line of the record. A turn that fails ends with task_complete without an answer.
// Its error is in that line, or else the last line about the quota says that it is used up.
func (e *ending) readCodex(l *codexLine, used string) {
	p := &l.Payload
	kind := l.Type
	if kind == "event_msg" {
		kind = p.Type
	}
	switch {
	case kind == "turn_context":
		e.flags = codexFlags(p.Approval, p.Sandbox.Type+p.Sandbox.Mode)
		e.dir = cmp.Or(p.Dir, e.dir)
	case kind == "task_complete" || kind == "turn_complete":
		e.message, e.after = "", ""
		if p.Answer == "" {
			e.fail(cmp.Or(p.Error.Message, used), l.At)
		}
	case l.Type == "event_msg" && kind == "task_started" || l.Type == "response_item":
		e.follow(goneOn)
	case !slices.Contains(codexNotes, kind):
		e.follow("an entry of the unknown type " + quote(kind) + " follows the limit")
	}
}

// codexSandboxes are the sandboxes that the command that resumes a session sets again.
var codexSandboxes = []string{"read-only", "workspace-write", "danger-full-access"}

// codexFlags returns the flags that set the sandbox of a turn. A session without a sandbox whose
// commands the user approves gets the default sandbox: nobody is there to approve them.
func codexFlags(approval, sandbox string) []string {
	if !slices.Contains(codexSandboxes, sandbox) || sandbox == "danger-full-access" && approval != "never" {
		return nil
	}
	return []string{"--sandbox", sandbox}
}

func (codex) resume(e *ending, id string) []string {
	return slices.Concat([]string{"codex", "exec"}, e.flags, []string{"resume", id, "--skip-git-repo-check", "Continue."})
}
