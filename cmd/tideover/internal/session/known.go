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

// wrappers are programs that run the command that follows.
var wrappers = []string{
	"env", "nice", "nohup", "time", "timeout", "caffeinate", "sudo", "setsid", "stdbuf", "ionice", "systemd-run", "systemd-inhibit",
	"npx", "bunx", "pnpx", "uvx", "ssh", "docker", "podman", "exec", "command",
}

// isWrapper reports whether a program runs the command that follows.
func isWrapper(name string) bool { return slices.Contains(wrappers, name) }

// assistantAmong returns the assistant that the words of a command run: one that
// is its first word, or follows a wrapper.
func assistantAmong(words []string) string {
	for _, word := range words {
		switch base := filepath.Base(word); {
		case packs[base] != "":
			return base
		case base == "claude-code" || base == "gemini-cli": // as packages are called
			return strings.TrimSuffix(strings.TrimSuffix(base, "-code"), "-cli")
		}
	}
	return ""
}
