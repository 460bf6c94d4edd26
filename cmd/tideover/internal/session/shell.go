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

// wrapped is a command inside another one: in a shell script, or after a program such as env.
type wrapped struct {
	inner []string                      // the command itself
	wrap  func(inner []string) []string // returns the whole command with another inner command
	dirs  []string                      // folders that the command changes to, one after the other
	env   []string                      // variables that the command sets, as NAME=value
}

// unwrap returns the command that argv runs, which may be argv itself. ok is false if an assistant
// occurs in a command that is too complex; then only the assistant's name is known.
func unwrap(argv []string) (w wrapped, assistant string, ok bool) {
	w = wrapped{inner: argv, wrap: func(inner []string) []string { return inner }}
	if len(argv) == 0 {
		return w, "", true
	}
	outer := filepath.Base(argv[0])
	if assistant = assistantOf(argv[0]); assistant != "" {
		return w, assistant, true
	}
	if slices.Contains(shells, outer) {
		return unwrapShell(argv, w)
	}
	program, known := wrappers[outer]
	if !known {
		return w, "", true
	}
	if at, dir := program.command(argv); at > 0 {
		if inner, name, simple := unwrap(argv[at:]); name != "" && simple {
			inner.dirs = append(dir, inner.dirs...)
			return inner.within(argv[:at]), name, true
		}
	}
	if name := assistantAmong(argv[1:]); name != "" {
		return w, name, false
	}
	return w, "", true
}

// within returns the command after other arguments, which may set variables.
func (w wrapped) within(before []string) wrapped {
	wrap := w.wrap
	w.wrap = func(inner []string) []string { return slices.Concat(before, wrap(inner)) }
	for _, arg := range before[1:] {
		if assignment.MatchString(arg) {
			w.env = append(w.env, arg)
		}
	}
	return w
}

// wrapper is a program that runs the command in its arguments.
type wrapper struct {
	flags     flagTable
	word      string // subcommand that runs a command; "" if the program itself does
	arguments int    // arguments before the command, such as the duration of timeout
	dir       string // flag that sets the folder
}

var packageRunner = newFlagTable("-y --yes --no -q --quiet --silent --verbose --bun --prefer-offline --offline", "-p --package --registry", "", "")

// wrappers has the programs that run the command in their arguments. The command after those without
// flags is not searched, because they may run it elsewhere.
var wrappers = map[string]wrapper{
	"env":        {flags: newFlagTable("- -i --ignore-environment -v --debug", "-u --unset -C --chdir", "", ""), dir: "-C"},
	"nice":       {flags: newFlagTable("", "-n --adjustment", "", "")},
	"nohup":      {flags: flagTable{}},
	"time":       {flags: newFlagTable("-p -v --verbose", "-f --format -o --output", "", "")},
	"timeout":    {flags: newFlagTable("--foreground -p --preserve-status -v --verbose -f", "-k --kill-after -s --signal", "", ""), arguments: 1},
	"caffeinate": {flags: newFlagTable("-d -i -m -s -u", "-t -w", "", "")},
	"setsid":     {flags: newFlagTable("-c --ctty -w --wait", "", "", "")},
	"stdbuf":     {flags: newFlagTable("", "-i --input -o --output -e --error", "", "")},
	"ionice":     {flags: newFlagTable("-t --ignore", "-c --class -n --classdata", "", "")},
	"npx":        {flags: packageRunner}, "bunx": {flags: packageRunner}, "pnpx": {flags: packageRunner},
	"pnpm": {flags: packageRunner, word: "dlx"}, "yarn": {flags: packageRunner, word: "dlx"}, "bun": {flags: packageRunner, word: "x"},
	"uvx":    {flags: newFlagTable("-q --quiet", "--from --with -p --python", "", "")},
	"cursor": {flags: flagTable{}},
	"sudo":   {}, "systemd-run": {}, "systemd-inhibit": {}, "ssh": {}, "docker": {}, "podman": {}, "exec": {}, "command": {},
}

// command returns the position of the command in the arguments, and the folder that the program
// changes to; 0 if the position is unknown.
func (w *wrapper) command(argv []string) (at int, dir []string) {
	if w.flags == nil {
		return 0, nil
	}
	rest := argv[1:]
	if w.word != "" {
		if len(rest) == 0 || rest[0] != w.word {
			return 0, nil
		}
		rest = rest[1:]
	}
	tokens, rest, err := w.flags.parse(rest, true)
	if err != nil || len(rest) <= w.arguments {
		return 0, nil
	}
	if t := find(tokens, w.dir); t != nil {
		dir = []string{t.value()}
	}
	for rest = rest[w.arguments:]; len(rest) > 0 && assignment.MatchString(rest[0]); rest = rest[1:] {
	}
	return len(argv) - len(rest), dir
}

// unwrapShell is unwrap for a shell with a script.
func unwrapShell(argv []string, w wrapped) (_ wrapped, assistant string, ok bool) {
	at := slices.IndexFunc(argv, shellScript.MatchString)
	if at < 0 || at+1 >= len(argv) {
		return w, "", true
	}
	script := argv[at+1]
	change, command, dir := changeFolder(script)
	before, words, simple := simpleCommand(command)
	if simple && len(words) > 0 && len(argv) == at+2 && at == 1 {
		inner, name, known := unwrap(words)
		if name != "" && known {
			wrap := inner.wrap
			inner.wrap = func(in []string) []string {
				return []string{argv[0], argv[1], change + strings.Join(append(slices.Clone(before), quoteWords(wrap(in))), " ")}
			}
			inner.env = append(inner.env, assignments(command)...)
			if dir != "" {
				inner.dirs = append([]string{dir}, inner.dirs...)
			}
			return inner, name, true
		}
	}
	for _, command := range commandsOf(script) {
		if name := assistantAmong(command); name != "" {
			return w, name, false
		}
	}
	return w, "", true
}

// cdCommand matches a script that begins with one change of the folder, and runs the rest only if
// that succeeds.
var cdCommand = lazyregexp.New(`^\s*cd\s+((?:[^\s"'\\;&|<>()` + "`" + `#]|"[^"\\` + "`" + `]*"|'[^']*')+)\s*&&\s*`)

// changeFolder splits a script that begins with "cd folder &&". change is that part of the script, and
// dir is the folder as it is written, without quotes.
func changeFolder(script string) (change, rest, dir string) {
	m := cdCommand.FindStringSubmatch(script)
	if m == nil || strings.Contains(m[1], "$(") {
		return "", script, ""
	}
	return m[0], script[len(m[0]):], strings.NewReplacer(`"`, "", "'", "").Replace(m[1])
}

// assignments returns the variables that a simple command sets, as NAME=value.
func assignments(command string) (list []string) {
	words, _, _ := splitWords(strings.TrimSpace(command)) // it is a simple command
	for _, word := range words {
		switch {
		case assignment.MatchString(word):
			list = append(list, word)
		case word != "exec":
			return list
		}
	}
	return list
}

// shellSyntax has the characters with a special meaning outside of quotes.
const shellSyntax = ";&|<>()$`*?[]{}~#!\n"

// simpleCommand splits a shell script that is one command of plain words. before has the words before
// the command, quoted: exec, and variables that are set. ok is false for any other script.
func simpleCommand(script string) (before, words []string, ok bool) {
	words, plain, err := splitWords(strings.TrimSpace(script))
	if err != nil || !plain {
		return nil, nil, false
	}
	for len(words) > 0 && (words[0] == "exec" || assignment.MatchString(words[0])) {
		word := words[0]
		if name, value, set := strings.Cut(word, "="); set {
			word = name + "=" + quoteWord(value)
		}
		before, words = append(before, word), words[1:]
	}
	return before, words, true
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
			_, wraps := wrappers[base]
			leads := assignment.MatchString(word) || wraps || strings.HasPrefix(word, "-") ||
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
	"qwen": "qwen", "agy": "agy", "copilot": "copilot-cli", "cursor-agent": "cursor-agent", "agent": "cursor-agent", // name of Cursor's command since 2026
}

// packages maps the names of packages to the names of their commands, for npx and its like.
var packages = map[string]string{
	"@anthropic-ai/claude-code": "claude", "@openai/codex": "codex", "@google/gemini-cli": "gemini", "@qwen-code/qwen-code": "qwen",
	"@github/copilot": "copilot", "opencode-ai": "opencode", "aider-chat": "aider",
}

// assistantOf returns the name of the assistant that a program, or a package with or without its
// version, is; "" if it is none.
func assistantOf(program string) string {
	if at := strings.LastIndexByte(program, '@'); at > 0 {
		if name := packages[program[:at]]; name != "" {
			return name
		}
	}
	name := strings.TrimSuffix(filepath.Base(program), ".exe")
	if packs[name] == "" {
		name = packages[program]
	}
	return name
}

// assistantAmong returns the first word that is the name of an assistant; "" if there is none.
func assistantAmong(words []string) string {
	for _, word := range words {
		if name := assistantOf(word); name != "" {
			return name
		}
	}
	return ""
}

// CommandPack returns the pack for the command of an assistant, which may be inside a shell script or
// after a program such as env. It returns "generic" if the command contains no known assistant.
func CommandPack(argv []string) string {
	_, assistant, _ := unwrap(argv)
	switch {
	case assistant != "" || len(argv) < 2:
	case filepath.Base(argv[0]) == "gh" && argv[1] == "copilot":
		assistant = argv[1]
	case strings.HasPrefix(filepath.Base(argv[0]), "python") && argv[1] == "-m" && len(argv) > 2:
		assistant = argv[2]
	}
	return cmp.Or(packs[assistant], "generic")
}

// runsAssistant reports whether a command runs an assistant that has no pack of its own.
func runsAssistant(argv []string) bool {
	commands := [][]string{argv}
	if at := slices.IndexFunc(argv, shellScript.MatchString); len(argv) > 0 && slices.Contains(shells, filepath.Base(argv[0])) && at >= 0 && at+1 < len(argv) {
		commands = commandsOf(argv[at+1])
	}
	return slices.ContainsFunc(commands, func(words []string) bool {
		if len(words) > 1 {
			if _, wraps := wrappers[filepath.Base(words[0])]; !wraps {
				words = words[:1]
			}
		}
		return slices.ContainsFunc(words, func(word string) bool { return detect.IsAssistant(filepath.Base(word)) })
	})
}
