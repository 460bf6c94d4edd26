package session

import (
	"path/filepath"
	"slices"
	"strings"
)

// packs are the packs of commands that are known by their names.
var packs = map[string]string{
	"claude": "claude-code", "codex": "codex", "gemini": "gemini", "opencode": "opencode", "aider": "aider",
	"agy": "agy", "copilot": "copilot-cli", "cursor-agent": "cursor-agent", "agent": "cursor-agent", // the name that Cursor installs since 2026
}

// PackOf returns the pack for a command, generic for those that nobody knows.
func PackOf(argv []string) string {
	if len(argv) > 0 {
		if pack := packs[filepath.Base(argv[0])]; pack != "" {
			return pack
		}
	}
	return packOfRunner(argv)
}

// Known fills in the resume command of an assistant whose ways are known, and
// reports whether it did.
func (s *Spec) Known() bool {
	if len(s.Start) == 0 || len(s.Resume) > 0 {
		return false
	}
	switch filepath.Base(s.Start[0]) {
	case "claude":
		return s.claude()
	case "codex":
		// With flags nobody knows which of them a resumed session needs.
		if len(s.Start) != 3 || s.Start[1] != "exec" || s.Start[2] == "resume" || strings.HasPrefix(s.Start[2], "-") {
			return false
		}
		s.Resume = []string{s.Start[0], "exec", "resume", "--last", "Continue."}
		s.ResumeAny = true // it takes the last one of the folder
		return true
	}
	return false
}

// claude chooses the session's id up front, and keeps all flags but those that
// say which session and what to do.
func (s *Spec) claude() bool {
	prompt := slices.IndexFunc(s.Start, func(arg string) bool { return arg == "-p" || arg == "--print" })
	next := prompt + 1
	// The prompt must be the next argument, or nobody knows which one it is.
	if prompt < 1 || next >= len(s.Start) || strings.HasPrefix(s.Start[next], "-") || !flagsOnly(s.Start[1:prompt]) || slices.ContainsFunc(s.Start, ofSession) {
		return false
	}
	s.Resume = slices.Clone(s.Start)
	s.Resume[next] = "Continue."
	s.Resume = append(s.Resume, "--resume", "{{.Session}}")
	s.Start = append(slices.Clone(s.Start), "--session-id", "{{.Session}}")
	return true
}

// flagsOnly reports whether the arguments begin with a flag, if there are any: what
// follows may be its value.
func flagsOnly(args []string) bool { return len(args) == 0 || strings.HasPrefix(args[0], "-") }

// ofSession reports whether the argument says which session is meant.
func ofSession(arg string) bool {
	name, _, _ := strings.Cut(arg, "=")
	return slices.Contains([]string{"--session-id", "--resume", "-r", "--continue", "-c", "--fork-session"}, name)
}
