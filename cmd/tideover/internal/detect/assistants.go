package detect

import "slices"

// assistants are the commands of assistants that have no pack of their own.
var assistants = []string{
	"amp", "auggie", "autohand", "cline", "cn", "command-code", "crush", "droid", "forge", "goose", "gptme", "grok", "groq", "interpreter", "jules", "junie",
	"kilo", "kilocode", "kimi", "kiro", "kiro-cli", "letta", "mini", "mistral", "nanocoder", "openhands", "pi", "plandex", "q", "qchat", "qodo", "qoder", "qwen",
	"roo", "rovodev", "sweagent", "trae-cli", "vibe", "warp", "zed", "omp", "iflow", "codebuff", "coderabbit", "devin", "continue", "tabnine", "cody",
}

// IsAssistant reports whether a command is an assistant that has no pack of its own; see [Options].
func IsAssistant(name string) bool { return slices.Contains(assistants, name) }
