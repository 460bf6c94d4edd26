package session

import (
	"errors"
	"slices"

	"github.com/tideover/tideover/internal/lazyregexp"
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

// assistants maps the name of each assistant whose sessions can be resumed to a function that
// returns how. The function gets the command with its arguments, and whether standard input is a
// pipe.
var assistants = map[string]func(argv []string, piped bool) (resumption, error){
	"claude": resumeClaude,
	"codex":  resumeCodex,
	"gemini": resumeGemini,
}

// claudeFlags are the flags of Claude Code 2.1, as listed by its --help and by
// https://docs.claude.com/en/docs/claude-code/cli-reference, without the flags that change which
// session is resumed: --worktree, --from-pr, --teleport, --bg and the like.
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
)

// claudeCommands are subcommands of Claude Code, which are not prompts.
var claudeCommands = []string{
	"agents", "auth", "auto-mode", "config", "doctor", "gateway", "import", "install", "mcp", "plugin", "plugins", "project", "setup-token",
	"ultrareview", "update", "upgrade",
}

// resumeClaude returns how a command of Claude Code is started and resumed. It sets the id of the
// session with --session-id. Claude Code accepts that flag together with --continue and --resume only
// with --fork-session ("--session-id can only be used with --continue or --resume if --fork-session
// is also specified"), which copies the conversation to the new id.
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
	resumed := find(tokens, "-r", "--resume")
	switch input := find(tokens, "--input-format"); {
	case find(tokens, "--no-session-persistence") != nil:
		return r, errors.New("with --no-session-persistence it stores no session")
	case input != nil && input.value() != "text":
		return r, errors.New("its prompts come from a stream, which can't be read twice")
	case resumed != nil && resumed.value() == "":
		return r, errors.New("--resume without an id asks the user for a session")
	}
	begin := tokens
	command := func(tokens []token) []string { return append([]string{argv[0]}, join(tokens)...) }
	var again []token
	if len(prompts) == 1 {
		again = replaceArgument(tokens, prompts[0], continuePrompt)
		r.prompt = tokens[prompts[0]].value()
	} else {
		again = slices.Insert(slices.Clone(tokens), printing+1, argument(continuePrompt))
		r.stdin = true
	}
	continued, forked, chosen := find(tokens, "-c", "--continue"), find(tokens, "--fork-session"), find(tokens, "--session-id")
	if chosen != nil {
		if r.id = chosen.value(); r.id == sessionField {
			r.id = ""
		}
		begin = without(begin, "--session-id")
	}
	switch format := find(tokens, "--output-format"); {
	case chosen == nil && forked == nil && resumed != nil:
		r.id = resumed.value()
	case chosen == nil && forked == nil && continued != nil && format != nil && format.value() == "stream-json":
		// The first event states the id, so the conversation need not be copied.
		r.latest = command(again)
	default:
		if continued != nil && forked == nil {
			begin = addFlag(begin, "--fork-session")
		}
		begin = addFlag(begin, "--session-id", sessionField)
	}
	again = without(again, "-c", "--continue", "-r", "--resume", "--fork-session", "--session-id")
	r.start, r.resume = command(begin), command(addFlag(again, "--resume", sessionField))
	return r, nil
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

// resumeCodex returns how a command of Codex is started and resumed. Codex chooses the id of the
// session itself and prints it first, so the id comes from the output.
func resumeCodex(argv []string, _ bool) (r resumption, err error) {
	root, rest, err := codexRootFlags.parse(argv[1:], true)
	switch {
	case err != nil:
		return r, err
	case len(rest) == 0 || slices.Contains(codexPrograms, rest[0]):
		return r, errNoPrompt
	case rest[0] != "exec" && rest[0] != "e":
		return r, errors.New(`it is interactive: use "codex exec"`)
	}
	tokens, _, err := codexExecFlags.parse(rest[1:], false)
	if err != nil {
		return r, err
	}
	if find(tokens, "--ephemeral") != nil {
		return r, errors.New("with --ephemeral it stores no session")
	}
	for _, t := range slices.Concat(root, tokens) {
		if t.is("-C", "--cd") {
			r.dir = t.value()
		}
	}
	r.start = slices.Clone(argv)
	words := arguments(tokens)
	isResume := len(words) > 0 && tokens[words[0]].value() == "resume"
	if isResume {
		tokens = slices.Delete(slices.Clone(tokens), words[0], words[0]+1)
		words = arguments(tokens)
	}
	prompts := len(words)
	switch {
	case isResume && find(tokens, "-i", "--image") != nil:
		return r, errors.New(`the flag --image of "codex exec resume" is not supported`)
	case !isResume && prompts > 0 && slices.Contains([]string{"review", "fork", "help"}, tokens[words[0]].value()):
		return r, errors.New(`only a prompt and "resume" of "codex exec" are supported`)
	case isResume && find(tokens, "--last") == nil:
		if prompts == 0 {
			return r, errors.New(`"resume" names no session`)
		}
		r.id = tokens[words[0]].value()
		prompts--
	case !isResume && (find(tokens, "--last") != nil || find(tokens, "--all") != nil):
		return r, errors.New(`the flags --last and --all need "resume"`)
	}
	if prompts > 1 {
		return r, errors.New("it has more than one prompt")
	}
	r.stdin = prompts == 0 || tokens[words[len(words)-1]].value() == "-"
	if !r.stdin {
		r.prompt = tokens[words[len(words)-1]].value()
	}
	var before, after []token // flags before and after the word resume; without images, which the session contains already
	for _, t := range without(tokens, "-i", "--image", "--last", "--all", endOfFlags) {
		switch {
		case t.flag == "":
		case slices.Contains(codexResumeFlags, t.flag):
			after = append(after, t)
		default:
			before = append(before, t)
		}
	}
	command := func(which string) []string {
		return slices.Concat([]string{argv[0]}, join(root), []string{rest[0]}, join(before), []string{"resume", which}, join(after), []string{continuePrompt})
	}
	r.resume = command(sessionField)
	if r.id == "" {
		r.latest = command("--last")
	}
	return r, nil
}

// geminiFlags are the flags of Gemini CLI 0.56 (packages/cli/src/config/config.ts).
var geminiFlags = newFlagTable(
	"-d --debug -y --yolo -s --sandbox --skip-trust --screen-reader --raw-output --accept-raw-output-risk",
	"-m --model -p --prompt --approval-mode --policy --admin-policy --allowed-mcp-server-names --allowed-tools -e --extensions "+
		"--session-id --include-directories -o --output-format",
	"-r --resume", "",
)

var (
	geminiCommands = []string{"mcp", "extensions", "extension", "skills", "skill", "hooks", "hook", "gemma"}
	geminiIndex    = lazyregexp.New(`^[0-9]+$`)
)

// resumeGemini returns how a command of Gemini CLI is started and resumed. It sets the id of the
// session with --session-id, which Gemini CLI has since 0.41.
func resumeGemini(argv []string, piped bool) (r resumption, err error) {
	tokens, _, err := geminiFlags.parse(argv[1:], false)
	if err != nil {
		return r, err
	}
	words := arguments(tokens)
	prompt := slices.IndexFunc(tokens, func(t token) bool { return t.is("-p", "--prompt") })
	switch {
	case len(words) > 0 && slices.Contains(geminiCommands, tokens[words[0]].value()), len(words) == 0 && prompt < 0 && !piped:
		return r, errNoPrompt
	case len(words) > 0 && prompt >= 0 || len(words) > 1:
		return r, errors.New("it has more than one prompt")
	}
	again := slices.Clone(tokens)
	switch {
	case prompt >= 0:
		r.prompt = tokens[prompt].value()
		again[prompt] = token{flag: tokens[prompt].flag, args: []string{tokens[prompt].flag, continuePrompt}}
	case len(words) > 0:
		again = replaceArgument(tokens, words[0], continuePrompt)
		r.prompt = tokens[words[0]].value()
	default:
		again, r.stdin = addFlag(tokens, "-p", continuePrompt), true
	}
	command := func(tokens []token) []string { return append([]string{argv[0]}, join(tokens)...) }
	begin := tokens
	resumed, chosen := find(tokens, "-r", "--resume"), find(tokens, "--session-id")
	switch {
	case resumed != nil && chosen != nil:
		return r, errors.New("--resume and --session-id can't be used together")
	case resumed != nil && (resumed.value() == "" || resumed.value() == "latest"):
		r.latest = command(again)
	case resumed != nil && geminiIndex.MatchString(resumed.value()):
		r.latest = command(again) // the number of a session changes with the other sessions
	case resumed != nil:
		r.id = resumed.value()
	case chosen != nil:
		if r.id = chosen.value(); r.id == sessionField {
			r.id = ""
		}
		begin = addFlag(without(begin, "--session-id"), "--session-id", sessionField)
	default:
		begin = addFlag(begin, "--session-id", sessionField)
	}
	again = without(again, "-r", "--resume", "--session-id")
	r.start, r.resume = command(begin), command(addFlag(again, "--resume", sessionField))
	return r, nil
}
