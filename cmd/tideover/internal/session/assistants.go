package session

import (
	"errors"
	"slices"
)

// continuePrompt is the prompt of a session that is resumed.
const continuePrompt = "Continue."

// sessionField is the template field of the session id.
const sessionField = "{{.Session}}"

// errNoPrompt says that the command of an assistant has no prompt: it is a subcommand, or it is
// interactive.
var errNoPrompt = errors.New("it has no prompt")

// resumption is how the session of an assistant is started and resumed. The commands are templates.
type resumption struct {
	start  []string
	resume []string // with the id
	latest []string // resumes the latest session of the folder, if the id is unknown; nil if the assistant can't
	id     string   // in the start command itself; "" if there is none
	stdin  bool     // the prompt is read from standard input
	prompt string   // first prompt; "" if it is read from standard input
	dir    string   // the folder that the command changes to, "" if it does not
}

// plans maps the name of each assistant whose sessions can be resumed to a function that returns how.
// The function gets the command with its arguments, and whether standard input is a pipe.
var plans = map[string]func(argv []string, piped bool) (resumption, error){
	"claude": resumeClaude, "codex": resumeCodex, "gemini": dialects["gemini"].plan, "qwen": dialects["qwen"].plan, "copilot": dialects["copilot"].plan,
	"cursor-agent": dialects["cursor-agent"].plan, "agent": dialects["cursor-agent"].plan, "opencode": dialects["opencode"].plan,
}

// claudeFlags are the flags of Claude Code 2.1, as listed by its --help and by
// https://docs.claude.com/en/docs/claude-code/cli-reference.
var claudeFlags = newFlagTable(
	"-p --print --verbose --dangerously-skip-permissions --allow-dangerously-skip-permissions --include-partial-messages "+
		"--include-hook-events --forward-subagent-text --replay-user-messages --ide --strict-mcp-config --disable-slash-commands --chrome --no-chrome "+
		"--fork-session -c --continue --no-session-persistence --bare --safe-mode --mcp-debug --brief --init --maintenance "+
		"--exclude-dynamic-system-prompt-sections",
	"--output-format --input-format --model --fallback-model --permission-mode --permission-prompt-tool --append-system-prompt "+
		"--append-system-prompt-file --append-subagent-system-prompt --system-prompt --system-prompt-file --settings --setting-sources --session-id "+
		"--agents --agent --advisor --max-turns --max-budget-usd --max-thinking-tokens --json-schema --effort -n --name --debug-file --plugin-dir --plugin-url "+
		"--thinking",
	"-r --resume -d --debug --prompt-suggestions",
	"--allowedTools --allowed-tools --disallowedTools --disallowed-tools --tools --add-dir --mcp-config --betas --file",
).refuse("-w --worktree --tmux --from-pr --teleport --bg --background --remote --remote-control --sdk-url --resume-session-at --init-only --print-config")

// claudeCommands are subcommands of Claude Code, which are not prompts.
var claudeCommands = []string{
	"agents", "auth", "auto-mode", "config", "doctor", "gateway", "import", "install", "mcp", "plugin", "plugins", "project", "setup-token",
	"ultrareview", "update", "upgrade",
}

// resumeClaude returns how a command of Claude Code is started and resumed.
func resumeClaude(argv []string, _ bool) (r resumption, err error) {
	tokens, _, err := claudeFlags.parse(argv[1:], false)
	if err != nil {
		return r, err
	}
	prompts := arguments(tokens)
	printing := slices.IndexFunc(tokens, func(t token) bool { return t.is("-p", "--print") })
	if len(prompts) > 0 && prompts[0] == 0 && slices.Contains(claudeCommands, tokens[0].value()) || len(prompts) == 0 && printing < 0 {
		return r, errNoPrompt
	}
	if len(prompts) > 1 {
		return r, errors.New("it has more than one prompt")
	}
	if err := checkClaude(tokens); err != nil {
		return r, err
	}
	var again []token
	if len(prompts) == 1 {
		again = replaceArgument(tokens, prompts[0], continuePrompt)
		r.prompt = tokens[prompts[0]].value()
	} else {
		again = slices.Insert(slices.Clone(tokens), printing+1, argument(continuePrompt))
		r.stdin = true
	}
	command := func(tokens []token) []string { return append([]string{argv[0]}, join(tokens)...) }
	begin, id, latest := claudeSession(tokens)
	r.id = id
	if latest {
		r.latest = command(again)
	}
	again = without(again, "-c", "--continue", "-r", "--resume", "--fork-session", "--session-id")
	r.start, r.resume = command(begin), command(addFlag(again, "--resume", sessionField))
	return r, nil
}

// checkClaude returns an error if the session of a command of Claude Code can't be resumed.
func checkClaude(tokens []token) error {
	resumed := find(tokens, "-r", "--resume")
	switch input := find(tokens, "--input-format"); {
	case find(tokens, "--no-session-persistence") != nil:
		return errors.New("with --no-session-persistence it stores no session")
	case input != nil && input.value() != "text":
		return errors.New("its prompts come from a stream, which can't be read twice")
	case resumed != nil && resumed.value() == "":
		return errors.New("--resume without an id asks the user for a session")
	}
	return nil
}

// claudeSession returns the arguments that start a session of Claude Code, and its id, if the
// command has one. latest is true if the session must be resumed as the latest one of the folder as
// long as its id is unknown.
//
// The arguments set the id with --session-id. Claude Code accepts that flag together with
// --continue and --resume only with --fork-session ("--session-id can only be used with --continue
// or --resume if --fork-session is also specified"), which copies the conversation to the new id.
func claudeSession(tokens []token) (begin []token, id string, latest bool) {
	begin = tokens
	resumed, continued := find(tokens, "-r", "--resume"), find(tokens, "-c", "--continue")
	forked, chosen := find(tokens, "--fork-session"), find(tokens, "--session-id")
	if chosen != nil {
		id = chosenID(chosen)
		begin = without(begin, "--session-id")
	}
	switch format := find(tokens, "--output-format"); {
	case chosen == nil && forked == nil && resumed != nil:
		return begin, resumed.value(), false
	case chosen == nil && forked == nil && continued != nil && format != nil && format.value() == "stream-json":
		return begin, id, true // the first event states the id, so the conversation need not be copied
	}
	if continued != nil && forked == nil {
		begin = addFlag(begin, "--fork-session")
	}
	return addFlag(begin, "--session-id", sessionField), id, false
}

// chosenID returns the value of a flag that chooses the id of a new session; "" if the session
// chooses it.
func chosenID(t *token) string {
	if id := t.value(); id != sessionField {
		return id
	}
	return ""
}

// The flags that both "codex" and "codex exec" accept: codexSharedOne with one value, codexShared
// without a value. They are from the sources of August 2026
// (codex-rs/utils/cli/src/shared_options.rs and exec/src/cli.rs).
const (
	codexSharedOne = "-m --model --local-provider -p --profile -s --sandbox -C --cd --add-dir -c --config --enable --disable"
	codexShared    = "--oss --approve-for-me --not-so-yolo --dangerously-bypass-approvals-and-sandbox --yolo --dangerously-bypass-hook-trust --full-auto --strict-config"
)

var (
	codexRootFlags = newFlagTable(codexShared+" --search", codexSharedOne+" -a --ask-for-approval", "", "-i --image")
	codexExecFlags = newFlagTable(
		codexShared+" --skip-git-repo-check --ephemeral --ignore-user-config --ignore-rules --json --experimental-json --last --all",
		codexSharedOne+" --output-schema --color -o --output-last-message", "", "-i --image",
	)
)

// codexResumeFlags are the flags that "codex exec resume" accepts. All others must come before the
// word resume.
var codexResumeFlags = []string{
	"-m", "--model", "-c", "--config", "--enable", "--disable", "--dangerously-bypass-approvals-and-sandbox", "--yolo", "--dangerously-bypass-hook-trust",
	"--full-auto", "--strict-config", "--skip-git-repo-check", "--ignore-user-config", "--ignore-rules", "--json", "--experimental-json",
	"--output-schema", "-o", "--output-last-message", "--last", "--all", "-i", "--image",
}

// codexPrograms are subcommands of Codex, which are not prompts.
var codexPrograms = []string{
	"login", "logout", "mcp", "mcp-server", "app-server", "completion", "sandbox", "debug", "apply", "a", "cloud", "features", "help", "doctor", "update", "plugin",
}

// codexExec is a command of "codex exec".
type codexExec struct {
	root    []token // flags before the word exec
	word    string  // exec, or its short form
	tokens  []token // after it, without the word resume
	resumes bool    // the word resume follows
	words   []int   // positions of the tokens that are not flags
}

// parseCodex parses the arguments of Codex. It returns an error if they run another command than
// "codex exec", or one that stores no session.
func parseCodex(args []string) (c codexExec, err error) {
	var rest []string
	c.root, rest, err = codexRootFlags.parse(args, true)
	switch {
	case err != nil:
		return c, err
	case len(rest) == 0 || slices.Contains(codexPrograms, rest[0]):
		return c, errNoPrompt
	case rest[0] != "exec" && rest[0] != "e":
		return c, errors.New(`it is interactive: use "codex exec"`)
	}
	c.word = rest[0]
	c.tokens, _, err = codexExecFlags.parse(rest[1:], false)
	if err != nil {
		return c, err
	}
	if find(c.tokens, "--ephemeral") != nil {
		return c, errors.New("with --ephemeral it stores no session")
	}
	c.words = arguments(c.tokens)
	if c.resumes = len(c.words) > 0 && c.tokens[c.words[0]].value() == "resume"; c.resumes {
		c.tokens = slices.Delete(slices.Clone(c.tokens), c.words[0], c.words[0]+1)
		c.words = arguments(c.tokens)
	}
	return c, nil
}

// session returns the id of the session that the command itself resumes; "" if it names none. The
// other words are prompts.
func (c *codexExec) session() (id string, prompts int, err error) {
	prompts = len(c.words)
	last := find(c.tokens, "--last") != nil
	switch {
	case c.resumes && find(c.tokens, "-i", "--image") != nil:
		return "", 0, errors.New(`the flag --image of "codex exec resume" is not supported`)
	case !c.resumes && prompts > 0 && slices.Contains([]string{"review", "fork", "help"}, c.tokens[c.words[0]].value()):
		return "", 0, errors.New(`only a prompt and "resume" of "codex exec" are supported`)
	case !c.resumes && (last || find(c.tokens, "--all") != nil):
		return "", 0, errors.New(`the flags --last and --all need "resume"`)
	case c.resumes && !last && prompts == 0:
		return "", 0, errors.New(`"resume" names no session`)
	case c.resumes && !last:
		return c.tokens[c.words[0]].value(), prompts - 1, nil
	}
	return "", prompts, nil
}

// resume returns the arguments that resume a session: an id, or --last.
func (c *codexExec) resume(which string) []string {
	var before, after []token // flags before and after the word resume; without images, which the session contains already
	for _, t := range without(c.tokens, "-i", "--image", "--last", "--all", endOfFlags) {
		switch {
		case t.flag == "":
		case slices.Contains(codexResumeFlags, t.flag):
			after = append(after, t)
		default:
			before = append(before, t)
		}
	}
	return slices.Concat(join(c.root), []string{c.word}, join(before), []string{"resume", which}, join(after), []string{continuePrompt})
}

// resumeCodex returns how a command of Codex is started and resumed. Codex chooses the id of the
// session itself and prints it first, so the id comes from the output.
func resumeCodex(argv []string, _ bool) (r resumption, err error) {
	c, err := parseCodex(argv[1:])
	if err != nil {
		return r, err
	}
	for _, t := range slices.Concat(c.root, c.tokens) {
		if t.is("-C", "--cd") {
			r.dir = t.value()
		}
	}
	id, prompts, err := c.session()
	if err != nil {
		return r, err
	}
	if prompts > 1 {
		return r, errors.New("it has more than one prompt")
	}
	if r.stdin = prompts == 0; !r.stdin {
		prompt := c.tokens[c.words[len(c.words)-1]].value()
		if r.stdin = prompt == "-"; !r.stdin {
			r.prompt = prompt
		}
	}
	r.id, r.start = id, slices.Clone(argv)
	r.resume = append([]string{argv[0]}, c.resume(sessionField)...)
	if r.id == "" {
		r.latest = append([]string{argv[0]}, c.resume("--last")...)
	}
	return r, nil
}
