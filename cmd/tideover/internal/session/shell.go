package session

import (
	"cmp"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/internal/lazyregexp"
)

// shells are the shells whose -c scripts are parsed.
var shells = []string{"sh", "bash", "dash", "zsh", "ksh", "ash"}

// shellScript matches the flag -c of a shell, which precedes a script, alone or joined with other
// flags, as in -ec.
var shellScript = lazyregexp.New(`^-[leux]*c$`)

// assignment matches the setting of a variable for one command.
var assignment = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*=`)

// wrapped is a command inside another one: in a shell script, or after env.
type wrapped struct {
	inner []string                      // the command itself
	wrap  func(inner []string) []string // returns the whole command with another inner command
}

// unwrap returns the command that argv runs, which may be argv itself. ok is false if an assistant
// occurs in a command that is too complex; then only the assistant's name is known.
func unwrap(argv []string) (w wrapped, assistant string, ok bool) {
	w = wrapped{argv, func(inner []string) []string { return inner }}
	if len(argv) == 0 {
		return w, "", true
	}
	outer := filepath.Base(argv[0])
	switch {
	case packs[outer] != "":
		return w, outer, true
	case slices.Contains(shells, outer):
		return unwrapShell(argv, w)
	case outer == "env":
		n := 1
		for n < len(argv) && assignment.MatchString(argv[n]) {
			n++
		}
		if n < len(argv) && packs[filepath.Base(argv[n])] != "" {
			return wrapped{argv[n:], func(inner []string) []string { return slices.Concat(argv[:n], inner) }}, filepath.Base(argv[n]), true
		}
	}
	if isWrapper(outer) {
		if name := assistantAmong(argv[1:]); name != "" {
			return w, name, false
		}
	}
	return w, "", true
}

// unwrapShell is unwrap for a shell with a script.
func unwrapShell(argv []string, w wrapped) (_ wrapped, assistant string, ok bool) {
	at := slices.IndexFunc(argv, shellScript.MatchString)
	if at < 0 || at+1 >= len(argv) {
		return w, "", true
	}
	script := argv[at+1]
	before, words, simple := simpleCommand(script)
	if simple && len(words) > 0 && len(argv) == at+2 && at == 1 {
		inner, name, known := unwrap(words)
		if name != "" && known {
			return wrapped{inner.inner, func(in []string) []string {
				line := quoteWords(inner.wrap(in))
				if before != "" {
					line = before + " " + line
				}
				return []string{argv[0], argv[1], line}
			}}, name, true
		}
	}
	for _, command := range commandsOf(script) {
		if name := assistantAmong(command); name != "" {
			return w, name, false
		}
	}
	return w, "", true
}

// shellSyntax has the characters with a special meaning outside of quotes.
const shellSyntax = ";&|<>()$`*?[]{}~#!\n"

// simpleCommand splits a shell script that is one command of plain words. before has the text
// before the command: exec, and variables that are set. ok is false for any other script.
func simpleCommand(script string) (before string, words []string, ok bool) {
	words, plain, err := splitWords(strings.TrimSpace(script))
	if err != nil || !plain {
		return "", nil, false
	}
	var kept []string
	for len(words) > 0 && (words[0] == "exec" || assignment.MatchString(words[0])) {
		word := words[0]
		if name, value, set := strings.Cut(word, "="); set {
			word = name + "=" + quoteWord(value)
		}
		kept, words = append(kept, word), words[1:]
	}
	return strings.Join(kept, " "), words, true
}

// commandsOf returns the first words of each command of a script, up to the program that it runs.
// It is a guess, used only for messages.
func commandsOf(script string) (list [][]string) {
	for _, part := range strings.FieldsFunc(script, func(c rune) bool { return strings.ContainsRune(";&|(){}`\n", c) }) {
		var command []string
		for word := range strings.FieldsSeq(part) {
			word = strings.Trim(word, `"'$`)
			command = append(command, word)
			base := filepath.Base(word)
			leads := assignment.MatchString(word) || isWrapper(base) || strings.HasPrefix(word, "-") ||
				slices.Contains([]string{"then", "do", "else", "if", "while", "until", "!"}, word)
			if !leads {
				break
			}
		}
		list = append(list, command)
	}
	return list
}

// quoteWords quotes words for a shell.
func quoteWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quoteWord(w)
	}
	return strings.Join(quoted, " ")
}

// plainWord matches a word that needs no quotes.
var plainWord = lazyregexp.New(`^[A-Za-z0-9_@%+:,./-]+$`)

// quoteWord quotes a word for a shell. The word may be a template: the session id that replaces
// {{.Session}} never contains quotes.
func quoteWord(w string) string {
	if plainWord.MatchString(w) {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// Split splits a command line into arguments like a shell that only knows quotes and backslashes.
func Split(line string) (argv []string, err error) {
	argv, _, err = splitWords(line)
	return argv, err
}

// splitWords splits a line as [Split] does. plain reports whether a real shell splits it into the
// same words.
func splitWords(line string) (argv []string, plain bool, err error) {
	s := wordSplitter{plain: true}
	for _, c := range line {
		s.add(c)
	}
	switch {
	case s.quote != 0:
		return nil, false, errors.New("a quote is not closed")
	case s.escaped:
		return nil, false, errors.New("the line ends with a backslash")
	}
	s.endWord()
	return s.argv, s.plain, nil
}

// wordSplitter splits a command line character by character.
type wordSplitter struct {
	argv    []string
	word    strings.Builder
	open    bool // there is a word, which may be empty
	quote   rune // the quote that is open; 0 if none is
	escaped bool // the last character was a backslash
	plain   bool // a real shell splits the line into the same words
}

func (s *wordSplitter) add(c rune) {
	switch {
	case s.escaped:
		s.addEscaped(c)
	case c == '\\' && s.quote != '\'':
		s.escaped, s.open = true, true
	case s.quote != 0:
		s.addQuoted(c)
	case c == '\'' || c == '"':
		s.quote, s.open = c, true
	case c == ' ' || c == '\t' || c == '\n':
		s.plain = s.plain && c != '\n' // a line break ends a command
		s.endWord()
	default:
		s.word.WriteRune(c)
		s.open = true
		s.plain = s.plain && !strings.ContainsRune(shellSyntax, c)
	}
}

func (s *wordSplitter) addEscaped(c rune) {
	if s.quote == '"' && c != '"' && c != '\\' {
		s.word.WriteByte('\\')
		s.plain = false
	}
	s.word.WriteRune(c)
	s.escaped = false
}

func (s *wordSplitter) addQuoted(c rune) {
	if c == s.quote {
		s.quote = 0
		return
	}
	s.word.WriteRune(c)
	s.plain = s.plain && (s.quote == '\'' || !strings.ContainsRune("$`!", c))
}

func (s *wordSplitter) endWord() {
	if s.open {
		s.argv = append(s.argv, s.word.String())
		s.word.Reset()
		s.open = false
	}
}

// packs maps the names of assistants' commands to their detection packs.
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

// PackOf returns the pack for the command of an assistant, or for a program such as npx or gh that
// runs an assistant. It returns "generic" if the command is unknown.
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

// CommandPack is [PackOf] for commands that may be inside a shell script or after a program such as
// env. It returns "generic" if the command contains no known assistant.
func CommandPack(argv []string) string {
	_, assistant, _ := unwrap(argv)
	return cmp.Or(packs[assistant], PackOf(argv))
}

// runsAssistant reports whether a command runs an assistant that has no pack of its own.
func runsAssistant(argv []string) bool {
	commands := [][]string{argv}
	if at := slices.IndexFunc(argv, shellScript.MatchString); len(argv) > 0 && slices.Contains(shells, filepath.Base(argv[0])) && at >= 0 && at+1 < len(argv) {
		commands = commandsOf(argv[at+1])
	}
	return slices.ContainsFunc(commands, func(words []string) bool {
		if len(words) > 1 && !isWrapper(filepath.Base(words[0])) {
			words = words[:1]
		}
		return slices.ContainsFunc(words, func(word string) bool { return detect.IsAssistant(filepath.Base(word)) })
	})
}
