package session

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
)

// packs maps the names of commands to their packs.
var packs = map[string]string{
	"claude": "claude-code", "codex": "codex", "gemini": "gemini", "opencode": "opencode", "aider": "aider",
	"agy": "agy", "copilot": "copilot-cli", "cursor-agent": "cursor-agent", "agent": "cursor-agent", // name of Cursor's command since 2026
}

// wrappers are programs that run the command in their arguments.
var wrappers = []string{
	"env", "nice", "nohup", "time", "timeout", "caffeinate", "sudo", "setsid", "stdbuf", "ionice", "systemd-run", "systemd-inhibit",
	"npx", "bunx", "pnpx", "uvx", "ssh", "docker", "podman", "exec", "command",
}

// isWrapper reports whether a program runs the command in its arguments.
func isWrapper(name string) bool { return slices.Contains(wrappers, name) }

// assistantAmong returns the first word that is the name of an assistant; "" if there is none.
func assistantAmong(words []string) string {
	for _, word := range words {
		switch base := filepath.Base(word); {
		case packs[base] != "":
			return base
		case base == "claude-code" || base == "gemini-cli": // names of packages
			return strings.TrimSuffix(strings.TrimSuffix(base, "-code"), "-cli")
		}
	}
	return ""
}

// subcommands has the packs of assistants that are a subcommand of another program.
var subcommands = map[[2]string]string{{"cursor", "agent"}: "cursor-agent", {"gh", "copilot"}: "copilot-cli"}

// packages has the packs of assistants that npx and its like run without installation.
var packages = map[string]string{
	"@anthropic-ai/claude-code": "claude-code", "@openai/codex": "codex", "@google/gemini-cli": "gemini",
	"@github/copilot": "copilot-cli", "opencode-ai": "opencode", "aider-chat": "aider", "aider": "aider",
}

// PackOf returns the pack for a command: of an assistant, or of a program that runs one, such as npx
// or gh. It is generic if the command is unknown.
func PackOf(argv []string) string {
	if len(argv) == 0 {
		return "generic"
	}
	name := strings.TrimSuffix(filepath.Base(argv[0]), ".exe")
	var first string // first argument that is not a flag
	if i := slices.IndexFunc(argv[1:], func(arg string) bool { return !strings.HasPrefix(arg, "-") }); i >= 0 {
		first = argv[1+i]
	}
	pack := cmp.Or(packs[name], subcommands[[2]string{name, first}])
	switch {
	case pack != "":
	case name == "npx" || name == "bunx" || name == "uvx":
		if at := strings.LastIndexByte(first, '@'); at > 0 { // a version
			first = first[:at]
		}
		pack = packages[first]
	case strings.HasPrefix(name, "python") && len(argv) > 2 && argv[1] == "-m":
		pack = packs[argv[2]]
	}
	return cmp.Or(pack, "generic")
}

// CommandPack returns the pack for a command, also for one that a shell or another program runs;
// generic if it contains no known assistant.
func CommandPack(argv []string) string {
	if _, assistant, _ := unwrap(argv); packs[assistant] != "" {
		return packs[assistant]
	}
	return PackOf(argv)
}
