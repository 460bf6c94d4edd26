package session

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// AboutFile is the name of the file in the folder of a watch that has its command.
const AboutFile = "about.json"

// Command is the start command of a session, and the folder that it runs in.
type Command struct {
	Args []string `json:"command"`
	Dir  string   `json:"dir"`
}

// Commands returns the commands of a session that begin conversations: its own, and those of the
// assistants that it may be handed over to.
func (s *Spec) Commands() []Command {
	list := []Command{{s.Start, s.Dir}}
	for _, f := range s.Fallback {
		list = append(list, Command{f.Start, s.Dir})
	}
	return list
}

// Watched returns the commands of the sessions whose folders are in a folder of
// watches, also of those that have ended, but for the one of the name.
func Watched(folder, name string) (list []Command) {
	entries, _ := os.ReadDir(folder) // or none has ever run
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

// SharesFolder reports whether the session has its conversations in the same folder
// as one of the others, by the same assistant: the latest one there may be that of
// either.
func (s *Spec) SharesFolder(others []Command) bool {
	name, folder := conversations(s.Start, s.Dir)
	for _, c := range others {
		otherName, otherFolder := conversations(c.Args, c.Dir)
		if name == otherName && folder == otherFolder {
			return true
		}
	}
	return false
}

// conversations returns the assistant of a command, and the folder to which its
// conversations belong.
func conversations(argv []string, dir string) (assistant, folder string) {
	w, assistant, understood := unwrap(argv)
	folder = filepath.Clean(dir)
	plan := assistants[assistant]
	if !understood || plan == nil {
		return assistant, folder
	}
	if r, err := plan(w.inner, true); err == nil && r.dir != "" {
		if folder = filepath.Clean(r.dir); !filepath.IsAbs(folder) {
			folder = filepath.Join(dir, folder)
		}
	}
	return assistant, folder
}
