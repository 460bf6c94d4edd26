package session

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
)

// AboutFile is the name of the file in the folder of a watch that contains its command.
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

// Watched returns the commands of all sessions in a folder of watches, including those that have
// ended, except the one with this name.
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
	assistant, r := planOf(argv, true)
	folder = filepath.Clean(dir)
	if r.dir != "" {
		if folder = filepath.Clean(r.dir); !filepath.IsAbs(folder) {
			folder = filepath.Join(dir, folder)
		}
	}
	return assistant, folder
}
