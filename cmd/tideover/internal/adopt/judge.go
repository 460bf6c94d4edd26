package adopt

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
)

// goneOn is why a session is left alone whose record has entries after the limit.
const goneOn = "it has gone on since the limit"

// judge applies the rule of this package: a session is adopted only if the last entry of its record
// is a limit, no process has it open, and nothing came after. It sets what the message of the limit
// says, and LeftAlone. limited is false if the session has not stopped at a limit.
func (s *Session) judge(e *ending, open []process) (limited bool, err error) {
	stop, err := readMessage(s.Pack, e)
	if err != nil || stop.Reason != detect.RateLimit || stop.Terminal {
		return false, err
	}
	s.Reset, s.Line = stop.Until, stop.Line
	s.LeftAlone = e.after
	if s.LeftAlone == "" {
		s.LeftAlone = wrongFolder(s.Dir)
	}
	for i := 0; s.LeftAlone == "" && i < len(open); i++ {
		s.LeftAlone = open[i].mayHaveOpen(s)
		s.Open = s.LeftAlone != ""
	}
	return true, nil
}

// readMessage returns how the rules of detection read the last message of a record.
func readMessage(pack string, e *ending) (stop detect.Stop, err error) {
	p, err := detect.Builtin(pack)
	if err != nil || e.message == "" {
		return stop, err
	}
	d := detect.New(p, detect.Options{At: e.at})
	if _, err := d.Stream().Write([]byte(e.message + "\n")); err != nil {
		return stop, err
	}
	return d.StopByAny(1), nil
}

// wrongFolder returns why a session can't be resumed in a folder; "" if it can be.
func wrongFolder(dir string) string {
	info, err := os.Stat(dir)
	switch {
	case !filepath.IsAbs(dir):
		return "its record does not name its folder"
	case err != nil:
		return "its folder: " + err.Error()
	case !info.IsDir():
		return "its folder " + dir + " is not a folder"
	}
	return ""
}

// process is a running process of an assistant.
type process struct {
	pid       int
	assistant string
	args      []string
	dir       string   // its working folder; "" if unknown
	files     []string // that it has open
}

// mayHaveOpen returns why the process may have the session open; "" if it can't have.
func (p *process) mayHaveOpen(s *Session) string {
	if p.assistant != s.Assistant {
		return ""
	}
	name := fmt.Sprintf("process %d (%s)", p.pid, p.assistant)
	switch {
	case slices.Contains(p.files, s.Record) && filepath.Ext(s.Record) == ".jsonl":
		return name + " has its record open"
	case strings.Contains(p.args[0], "/app-server-daemon/"): // Codex leaves it running; a window is a process of its own
		return ""
	case slices.ContainsFunc(p.args, func(arg string) bool { return strings.Contains(arg, s.ID) }):
		return name + " was started with its id"
	case p.dir == "":
		return name + " may have it open: the folder of the process is unknown"
	case isInside(s.Dir, p.dir), s.Assistant == "opencode" && isInside(p.dir, s.Dir): // which shows the sessions of a whole repository
		return name + " runs in its folder, and may have it open"
	case slices.ContainsFunc(p.args, func(arg string) bool { return filepath.IsAbs(arg) && isInside(s.Dir, arg) }):
		return name + " was started with its folder, and may have it open"
	case p.serves():
		return name + " serves sessions of all folders, and may have it open"
	}
	return ""
}

// serves reports whether the process serves the sessions of all folders to other programs.
func (p *process) serves() bool {
	return slices.ContainsFunc(p.args, func(arg string) bool {
		return slices.Contains([]string{"serve", "web", "acp", "app-server", "mcp-server", "remote-control"}, arg)
	})
}

// isInside reports whether a path is a folder or in it.
func isInside(folder, path string) bool {
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		folder = real
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}

// programs are the words in the path of an assistant's program, besides its name.
var programs = map[string]string{
	"@anthropic-ai/claude-code": "claude", "@openai/codex": "codex", "opencode-ai": "opencode",
}

// interpreters run the programs of assistants that are scripts.
var interpreters = []string{"node", "bun", "deno", "sh", "bash", "dash", "zsh"}

// assistantOf returns the assistant that a command line runs; "" if it runs none.
func assistantOf(args []string) string {
	for i, arg := range args {
		base := strings.TrimSuffix(filepath.Base(arg), ".exe")
		for _, name := range Assistants() {
			if base == name || base == "."+name {
				return name
			}
		}
		for part, name := range programs {
			if strings.Contains(arg, "/"+part+"/") {
				return name
			}
		}
		if i > 0 && !strings.HasPrefix(arg, "-") || i == 0 && !slices.Contains(interpreters, base) {
			break // the first word of a script's interpreter that is not a flag is the script
		}
	}
	return ""
}
