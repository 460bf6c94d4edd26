package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// PlanResume sets the resume command of an assistant's session, unless the user has given one. If it
// is not known how to resume the session, it sets NoResume to the reason. piped means that standard
// input is a pipe, which may contain the prompt.
func (s *Spec) PlanResume(piped bool) {
	s.typed = slices.Clone(s.Start)
	if len(s.Start) == 0 || len(s.Resume) > 0 || s.Restart {
		return
	}
	w, assistant, understood := unwrap(s.Start)
	plan := plans[assistant]
	switch {
	case assistant == "" && CommandPack(s.Start) != "generic" && len(s.Start) > 1:
		s.NoResume = "how " + CommandPack(s.Start) + " resumes a session is unknown"
	case assistant == "":
	case !understood:
		s.NoResume = assistant + " is run by a command that is too complex: only a plain call is supported, such as sh -c 'cd lib && claude -p x' or timeout 5h claude -p x"
	case plan == nil && len(w.inner) > 1:
		s.NoResume = "how " + assistant + " resumes a session is unknown"
	case plan == nil:
	default:
		r, err := plan(w.inner, piped)
		s.usePlan(w, assistant, r, err)
	}
}

// usePlan sets the commands of an assistant's session, or the reason why it can't be resumed.
func (s *Spec) usePlan(w wrapped, assistant string, r resumption, err error) {
	switch {
	case errors.Is(err, errNoPrompt):
	case err != nil:
		s.NoResume = fmt.Sprintf("the command of %s: %v", assistant, err)
	case r.id == "" && !mentions(r.start, "Session") && !s.readsID():
		s.NoResume = fmt.Sprintf("the pack %s does not find the session id in the output of %s: use the pack %s, or extend it", s.Pack, assistant, packs[assistant])
	default:
		s.Start, s.Resume, s.SessionID, s.stdinPrompt = w.wrap(r.start), w.wrap(r.resume), r.id, r.stdin
		if r.latest != nil {
			s.ResumeLatest = w.wrap(r.latest)
		}
	}
}

// ReadsPrompt reports whether the prompt is read from standard input. Call it after
// [Spec.PlanResume].
func (s *Spec) ReadsPrompt() bool { return s.stdinPrompt }

// RunsAgain reports whether the start command is run again instead of a resume command, because the
// command is not an assistant. Call it after [Spec.PlanResume].
func (s *Spec) RunsAgain() bool { return len(s.Resume) == 0 && s.NoResume == "" && !s.Restart }

// ScriptNote says that the first prompt of an assistant in the session's script is run again; "" if the
// command is not a script, or is not run again.
func (s *Spec) ScriptNote() string {
	if !s.RunsAgain() || !isScript(s.Start, s.Dir) {
		return ""
	}
	return fmt.Sprintf("session %s runs a script, and an assistant in a script can't be resumed: when it stops, the script is run again unchanged. "+
		"If it runs an assistant, set resume to the command that resumes it, or restart to run its first prompt again", s.Name)
}

// interactiveScript matches the flags of a shell that runs a command which may be an alias.
var interactiveScript = lazyregexp.New(`^-[a-z]*i[a-z]*c$|^-[a-z]*c[a-z]*i$`)

// isScript reports whether a command is a script, or a command of an interactive shell.
func isScript(argv []string, dir string) bool {
	w, _, _ := unwrap(argv)
	if argv = w.inner; len(argv) == 0 {
		return false
	}
	if isShell(argv[0]) {
		return len(argv) > 1 && (!strings.HasPrefix(argv[1], "-") || interactiveScript.MatchString(argv[1]))
	}
	path := argv[0]
	if found, err := exec.LookPath(path); err == nil && !strings.Contains(path, "/") {
		path = found
	} else if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return false // it can't be started
	}
	defer f.Close()
	head := make([]byte, 2)
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == "#!"
}

// CannotResume says why the session can't be resumed, and what to do; "" if it can be, or if the
// start command may be run again.
func (s *Spec) CannotResume() string {
	if s.NoResume == "" || len(s.Resume) > 0 || s.Restart {
		return ""
	}
	return fmt.Sprintf("session %s can't be resumed: %s: "+
		"set resume to the command that resumes it, or restart to run its first prompt again", s.Name, s.NoResume)
}

// planOf returns the assistant that a command runs, and how its session is started and resumed; the
// zero resumption if that is unknown.
func planOf(argv []string, piped bool) (assistant string, r resumption) {
	w, assistant, understood := unwrap(argv)
	if plan := plans[assistant]; plan != nil && understood {
		if planned, err := plan(w.inner, piped); err == nil {
			r = planned
		}
	}
	return assistant, r
}

// AboutFile is the name of the file in the folder of a watch that describes the watched command.
const AboutFile = "about.json"

// Command is the start command of a session and its working folder.
type Command struct {
	Args []string `json:"command"`
	Dir  string   `json:"dir"`
}

// Commands returns the commands of a session that start conversations: its own, and those of its
// fallbacks.
func (s *Spec) Commands() []Command {
	list := []Command{{s.Start, s.Dir}}
	for _, f := range s.Fallback {
		list = append(list, Command{f.Start, s.Dir})
	}
	return list
}

// Watched returns the commands of all sessions that "tideover watch" has stored in the folder,
// including sessions that have ended, but not that of the session with this name.
func Watched(folder, name string) (list []Command) {
	entries, _ := os.ReadDir(folder) // on an error, no watch has run yet
	for _, e := range entries {
		if e.Name() == name {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, e.Name(), AboutFile))
		var c Command
		if err == nil && json.Unmarshal(text, &c) == nil {
			list = append(list, c)
		}
	}
	return list
}

// SharesFolder reports whether another session uses the same assistant in the same folder, so that
// the latest conversation there may belong to either.
func (s *Spec) SharesFolder(others []Command) bool {
	name, folder := conversations(s.Start, s.Dir)
	return slices.ContainsFunc(others, func(c Command) bool {
		otherName, otherFolder := conversations(c.Args, c.Dir)
		return name == otherName && folder == otherFolder
	})
}

// conversations returns the assistant of a command and the folder that its conversations belong to.
func conversations(argv []string, dir string) (assistant, folder string) {
	w, _, _ := unwrap(argv)
	assistant, r := planOf(argv, true)
	for _, d := range append(w.dirs, r.dir) {
		if filepath.IsAbs(d) {
			dir = d
		} else {
			dir = filepath.Join(dir, d)
		}
	}
	return assistant, filepath.Clean(dir)
}
