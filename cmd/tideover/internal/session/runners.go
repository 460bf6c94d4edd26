package session

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
)

// subcommands are the packs of assistants that are a part of another program.
var subcommands = map[[2]string]string{{"cursor", "agent"}: "cursor-agent", {"gh", "copilot"}: "copilot-cli"}

// packages are the packs of assistants that are run without being installed.
var packages = map[string]string{
	"@anthropic-ai/claude-code": "claude-code", "@openai/codex": "codex", "@google/gemini-cli": "gemini",
	"@github/copilot": "copilot-cli", "opencode-ai": "opencode", "aider-chat": "aider", "aider": "aider",
}

// packOfRunner returns the pack for a command whose program runs an assistant, such as
// npx or gh; generic if it runs none that is known.
func packOfRunner(argv []string) string {
	if len(argv) == 0 {
		return "generic"
	}
	name := strings.TrimSuffix(filepath.Base(argv[0]), ".exe")
	var first string // argument that is no flag
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
