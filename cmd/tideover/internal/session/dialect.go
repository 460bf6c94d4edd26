package session

import (
	"errors"
	"slices"
	"strings"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// dialect describes the command line of an assistant whose sessions are resumed by a flag.
type dialect struct {
	flags    flagTable
	word     string   // subcommand that works on a prompt; "" if the program itself does
	commands []string // subcommands, which are not prompts
	prompt   []string // flags whose value is the prompt
	print    []string // flags without which a command with a prompt is interactive; nil if none is needed
	join     bool     // several arguments are one prompt
	piped    bool     // the prompt may be read from standard input

	choose string   // flag that sets the id of a new session; "" if the assistant chooses it
	resume []string // flags that resume a session by its id
	latest []string // flags that resume the latest session of the folder
	fork   []string // flags that copy the session that is resumed
	once   []string // flags that are only for the first prompt
	dir    []string // flags that set the folder
}

var dialects = map[string]*dialect{
	// Gemini CLI 0.56 (packages/cli/src/config/config.ts).
	"gemini": {
		flags: newFlagTable(
			"-d --debug -y --yolo -s --sandbox --skip-trust --screen-reader --raw-output --accept-raw-output-risk",
			"-m --model -p --prompt --approval-mode --policy --admin-policy --allowed-mcp-server-names --allowed-tools -e --extensions "+
				"--session-id --include-directories -o --output-format",
			"-r --resume", "",
		).refuse("-w --worktree -i --prompt-interactive --acp --experimental-acp -l --list-extensions --list-sessions --delete-session"),
		commands: []string{"mcp", "extensions", "extension", "skills", "skill", "hooks", "hook", "gemma"},
		prompt:   []string{"-p", "--prompt"}, piped: true, choose: "--session-id", resume: []string{"--resume", "-r"},
	},
	// Qwen Code 0.24 (qwen --help).
	"qwen": {
		flags: newFlagTable(
			"-d --debug --bare --safe-mode --insecure -s --sandbox -y --yolo --checkpointing --experimental-lsp --openai-logging --screen-reader "+
				"--include-partial-messages -c --continue --fork-session --telemetry --telemetry-log-prompts",
			"-m --model --fallback-model -p --prompt --system-prompt --append-system-prompt --output-style --sandbox-image --approval-mode --channel "+
				"--allowed-mcp-server-names --mcp-config --allowed-tools -e --extensions --include-directories --add-dir --openai-logging-dir --openai-api-key "+
				"--openai-base-url -o --output-format --json-file --json-schema --session-id --max-session-turns --max-wall-time --max-tool-calls "+
				"--max-subagent-depth --core-tools --exclude-tools --disabled-slash-commands --auth-type --proxy",
			"-r --resume", "",
		).refuse("--worktree -i --prompt-interactive --acp -l --list-extensions --input-format --input-file --json-fd --chat-recording"),
		commands: []string{"mcp", "extensions", "auth", "hooks", "hook", "channel", "review"},
		prompt:   []string{"-p", "--prompt"}, piped: true, choose: "--session-id", resume: []string{"--resume", "-r"},
		latest: []string{"--continue", "-c"}, fork: []string{"--fork-session"},
	},
	// GitHub Copilot CLI 1.0 (copilot --help).
	"copilot": {
		flags: newFlagTable(
			"--fleet --trust-folder -s --silent --disable-client-telemetry --enable-memory --continue --allow-all-tools --allow-all-paths --disallow-temp-dir "+
				"--banner --screen-reader --plain-diff --share-gist --disable-builtin-mcps --enable-all-github-mcp-tools --allow-all-mcp-server-instructions "+
				"--allow-all-urls --allow-all --yolo --autopilot --plan --experimental --remote --remote-export --assisted-approval --no-custom-instructions "+
				"--no-auto-update --no-ask-user --no-color --no-experimental --no-bash-env --no-mouse --no-remote --no-remote-export",
			"-p --prompt --model --reasoning-effort --context --auto-tier --agent -n --name --session-id -C --log-dir --extension-sdk-path --log-level --stream "+
				"--output-format --add-dir --attachment --disable-mcp-server --add-github-mcp-toolset --add-github-mcp-tool --plugin-dir "+
				"--additional-mcp-config --mcp-github-auth --max-autopilot-continues --mode --dynamic-retrieval --enable-mcp-server --max-ai-credits --usage-output-file",
			"-r --resume --share --bash-env --mouse",
			"--allow-tool --deny-tool --available-tools --excluded-tools --secret-env-vars --allow-url --deny-url",
		).refuse("-i --interactive --connect --acp --worktree --environment-host --environment-compute-id"),
		commands: []string{
			"app", "login", "help", "init", "config", "update", "version", "workflow", "sessions", "memories", "plugin", "mcp", "skill", "instruction", "lsp",
			"sandbox", "completion",
		},
		prompt: []string{"-p", "--prompt"}, piped: true, choose: "--session-id", resume: []string{"--resume", "-r"}, latest: []string{"--continue"},
		once: []string{"--attachment", "-n", "--name"}, dir: []string{"-C"},
	},
	// Cursor's agent (https://cursor.com/docs/cli/reference/parameters). It prints the id with --output-format json or stream-json.
	"cursor-agent": {
		flags: newFlagTable(
			"-p --print --stream-partial-output -f --force --yolo --plan --trust --approve-mcps --continue --browser --skip-worktree-setup",
			"--output-format --model --mode --sandbox --workspace --api-key -H --header -n --name --plugin-dir", "--resume", "",
		).refuse("-c --cloud -w --worktree --worktree-base --list-models"),
		commands: []string{
			"login", "logout", "mcp", "status", "whoami", "models", "about", "update", "create-chat", "generate-rule", "rule", "agent", "ls", "resume", "help",
			"install-shell-integration", "uninstall-shell-integration",
		},
		print: []string{"-p", "--print"}, join: true, piped: true, resume: []string{"--resume"}, latest: []string{"--continue"},
		once: []string{"-n", "--name"}, dir: []string{"--workspace"},
	},
	// opencode 1.18 (opencode run --help). It prints the id with --format json.
	"opencode": {
		flags: newFlagTable(
			"--print-logs --pure -c --continue --fork --share --thinking --auto",
			"--log-level --command -s --session -m --model --agent --format --title --attach -p --password -u --username --dir --port --variant", "", "-f --file",
		).refuse("-i --interactive"),
		word: "run", join: true, piped: true, resume: []string{"--session", "-s"}, latest: []string{"--continue", "-c"}, fork: []string{"--fork"},
		once: []string{"--command", "--title", "-f", "--file"}, dir: []string{"--dir"},
	},
}

// sessionNumber matches the number of a session, which changes with the other sessions.
var sessionNumber = lazyregexp.New(`^[0-9]+$`)

// plan returns how a command is started and resumed.
func (d *dialect) plan(argv []string, piped bool) (r resumption, err error) {
	args, before := argv[1:], argv[:1]
	if d.word != "" {
		root, rest, err := d.flags.parse(args, true)
		if err != nil || len(rest) == 0 || rest[0] != d.word {
			return r, errNoPrompt
		}
		before, args = slices.Concat(argv[:1], join(root), rest[:1]), rest[1:]
	}
	tokens, _, err := d.flags.parse(args, false)
	if err != nil {
		return r, err
	}
	again, err := d.withoutPrompt(&r, tokens, piped)
	if err != nil {
		return r, err
	}
	command := func(tokens []token) []string { return slices.Concat(before, join(tokens)) }
	begin, id, latest, err := d.session(tokens)
	if err != nil {
		return r, err
	}
	if at := find(tokens, d.dir...); at != nil {
		r.dir = at.value()
	}
	r.id = id
	again = without(again, slices.Concat(d.fork, d.once)...)
	same := without(again, slices.Concat(d.resume, d.latest, []string{d.choose})...)
	switch {
	case latest:
		r.latest = command(again) // the command itself resumes the latest session
	case d.choose == "" && id == "":
		r.latest = command(addFlag(same, d.latest[0]))
	}
	r.start, r.resume = command(begin), command(addFlag(same, d.resume[0], sessionField))
	return r, nil
}

// withoutPrompt returns the arguments with the prompt replaced by [continuePrompt], and sets the
// prompt of r.
func (d *dialect) withoutPrompt(r *resumption, tokens []token, piped bool) (again []token, err error) {
	words := arguments(tokens)
	prompt := slices.IndexFunc(tokens, func(t token) bool { return t.is(d.prompt...) })
	printing := slices.IndexFunc(tokens, func(t token) bool { return t.is(d.print...) })
	isCommand := len(words) > 0 && slices.Contains(d.commands, tokens[words[0]].value())
	fromPipe := d.piped && piped || printing >= 0
	switch {
	case isCommand, d.print != nil && printing < 0, len(words) == 0 && prompt < 0 && !fromPipe:
		return nil, errNoPrompt
	case len(words) > 0 && prompt >= 0 || len(words) > 1 && !d.join:
		return nil, errors.New("it has more than one prompt")
	}
	again, r.prompt = d.replacePrompt(tokens, words, prompt, printing)
	r.stdin = len(words) == 0 && prompt < 0
	return again, nil
}

// replacePrompt returns the arguments with [continuePrompt] in place of the prompt, and the prompt; "" if
// it is read from standard input. words, prompt and printing are the positions of the arguments, of the
// flag with the prompt and of the flag that prints.
func (d *dialect) replacePrompt(tokens []token, words []int, prompt, printing int) (again []token, text string) {
	switch {
	case prompt >= 0:
		text = tokens[prompt].value()
		again = slices.Clone(tokens)
		again[prompt] = token{flag: tokens[prompt].flag, args: []string{tokens[prompt].flag, continuePrompt}}
	case len(words) > 0:
		var parts []string
		for _, at := range words {
			parts = append(parts, tokens[at].value())
		}
		text = strings.Join(parts, " ")
		again = replaceArgument(tokens, words[0], continuePrompt)
		for _, at := range slices.Backward(words[1:]) {
			again = slices.Delete(again, at, at+1)
		}
	case d.prompt != nil:
		again = addFlag(tokens, d.prompt[0], continuePrompt)
	default:
		again = slices.Insert(slices.Clone(tokens), printing+1, argument(continuePrompt))
	}
	return again, text
}

// session returns the arguments that start a session, and its id, if the command has one. latest is
// true if the command resumes the latest session, or one by its number. The arguments set the id of a
// new session if the assistant can.
func (d *dialect) session(tokens []token) (begin []token, id string, latest bool, err error) {
	resumed, chosen := find(tokens, d.resume...), find(tokens, d.choose)
	switch {
	case resumed != nil && chosen != nil:
		return nil, "", false, errors.New(d.resume[0] + " and " + d.choose + " can't be used together")
	case find(tokens, d.fork...) != nil:
		return nil, "", false, errors.New("the flag " + d.fork[0] + " is not supported")
	case resumed != nil && (resumed.value() == "" || resumed.value() == "latest" || sessionNumber.MatchString(resumed.value())),
		find(tokens, d.latest...) != nil:
		return tokens, "", true, nil
	case resumed != nil:
		return tokens, resumed.value(), false, nil
	case chosen != nil:
		return addFlag(without(tokens, d.choose), d.choose, sessionField), chosenID(chosen), false, nil
	case d.choose != "":
		return addFlag(tokens, d.choose, sessionField), "", false, nil
	}
	return tokens, "", false, nil
}
