package cli

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

const watchLong = `Keeps a long-running command going through interruptions: an assistant that runs into
a usage limit, or any other command.

When the command ends, its exit code and the last lines of its output show why:
  limit with a stated end   wait until then, and resume the same session
  limit without one, crash  retry by the policy
  waiting does not help     give up
"tideover detect" shows how the output in a file is understood.

A limit with a stated end uses one of the windows and no attempt; every other failure
uses an attempt. An attempt that lasts as long as the policy's reset-after resets
the count of attempts, but not of windows.

Sessions with the same account share its limit: a stated end holds back all of them,
and after a limit without one, only one session at a time checks whether it is over.
--account sets the account; the default is that of the assistant.

With --fallback codex, another assistant works in the same folder while a stated limit
lasts longer than --fallback-after. After the reset the session continues.

The state is in a folder of its own. If watch or the machine stops, run the same
command in the same folder again: it continues with the same deadline and counters.
"tideover sessions" shows, pauses, resumes and stops it from another terminal.

{{.Session}} in a command is the id of the session. It is generated, or read from the
output of a command that states its own. For claude, codex, gemini, qwen,
copilot, cursor-agent and opencode with a prompt, the resume command is known, also
inside sh -c, npx, timeout and the like. If an assistant can't be resumed, a warning says so at the start, and the session gives up instead of repeating its first
prompt; use --resume or --restart to change that. Other commands are run again
unchanged, unless --resume is given.

On a terminal the command gets a terminal of its own and works as usual, including
Ctrl-Z. If it is interactive and a limit appears on its screen, the notifiers send a
message, and "tideover sessions" shows the limit. With --type-at-reset, or if the
configuration says so, the choice to wait is made if Claude Code asks, and "Continue."
and Enter are typed after the stated end, provided that the message is still on the
screen and no key was pressed since. Without a
terminal the output is passed through. The command that starts the session reads
standard input; those that resume it do not.`

const watchExample = `  # an assistant overnight, which continues when its usage limit resets
  tideover watch -- claude -p "Work through TODO.md"

  # any command, with its own way to resume
  tideover watch --detect generic --resume './job --continue {{.Session}}' -- ./job --id {{.Session}}

  # at most four windows, nothing between 23:00 and 07:00, and a message at the end
  tideover watch --windows 4 --quiet-hours 23:00-07:00 --notify phone -- claude -p "Port it to Go"

  # interactive: a message at a limit, and "Continue." when the limit is over
  tideover watch --notify phone --type-at-reset -- claude

  # codex works in the folder while a limit of claude lasts longer than two hours
  tideover watch --fallback codex --fallback-after 2h -- claude -p "Work through TODO.md"

  # from another terminal
  tideover sessions ls --watch
  tideover sessions stop NAME --tonight`

// watchOptions holds the flags of watch.
type watchOptions struct {
	source configFlags

	resume, pack, prompt      string
	resumeAny, restart        bool
	on, fallback              []string
	policy, quiet, pauseAt    string
	windows                   int
	deadline, after, spread   duration
	name, dir, account        string
	notify                    []string
	startNew, silent, noCount bool

	typeAtReset *bool // nil means the value in the configuration

	given []string // flags of the command line, stored to continue the session later
}

func newWatch(std Streams) *cobra.Command {
	o := &watchOptions{}
	var typeAtReset bool
	cmd := &cobra.Command{
		Use:     "watch [flags] [--] command [argument...]",
		Short:   "Keep a long command going through usage limits and failures",
		Long:    watchLong,
		Example: watchExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("watch: no command given: write it after the flags")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.given = givenFlags(cmd.Flags())
			if cmd.Flags().Changed("type-at-reset") {
				o.typeAtReset = &typeAtReset
			}
			return runWatch(cmd.Context(), std, o, args)
		},
	}
	f := orderedFlags(cmd)
	f.SetInterspersed(false)
	f.StringVar(&o.resume, "resume", "", "`command` that resumes the session and contains {{.Session}}; quotes work as in a shell, but no shell runs it")
	f.BoolVar(&o.resumeAny, "resume-any", false, "the resume command finds the session without {{.Session}}")
	f.BoolVar(&o.restart, "restart", false, "run the start command again with its first prompt, instead of resuming the session")
	f.StringVar(&o.pack, "detect", "", "`pack` of rules that detect why the command stopped (default: by the command's name, else generic)")
	f.StringArrayVar(&o.on, "on", nil, "action after a stop, as `reason=action`; reasons are "+strings.Join(session.Reasons(), ", ")+"; actions are "+strings.Join(session.Actions, ", "))
	f.StringArrayVar(&o.fallback, "fallback", nil, "`assistant` that works in the folder during a stated limit: claude, codex or gemini, or a command with {{.Prompt}}; can be repeated")
	f.StringVar(&o.prompt, "fallback-prompt", "", "`prompt` for the fallback assistant, with {{.Task}}, {{.Assistant}} and {{.Until}}")
	groupFlags(f, "Command", "resume", "resume-any", "restart", "detect", "on", "fallback", "fallback-prompt")
	f.StringVarP(&o.policy, "policy", "p", session.DefaultPolicy, "`policy` in text form, a preset with keys, or the name of one in the configuration")
	f.IntVar(&o.windows, "windows", session.DefaultWindows, "maximum number of limits with a stated end to wait for")
	f.Var(&o.deadline, "deadline", "time limit of the whole session")
	f.StringVar(&o.quiet, "quiet-hours", "", "`hours` in which no command is started, such as 23:00-07:00, optionally with a time zone")
	f.StringVar(&o.pauseAt, "pause-at", "", "`percent` of the quota, such as 90%, from which no command is started until the reset (codex and claude)")
	f.Var(&o.after, "fallback-after", "shortest stated limit for which a fallback starts (default 1h)")
	groupFlags(f, "Limits", "policy", "windows", "deadline", "quiet-hours", "pause-at", "fallback-after")
	f.StringVar(&o.account, "account", "", "`name` of the account whose limit is shared with other sessions; none for no account (default: the assistant's, with its login)")
	o.spread = duration(account.DefaultSpread)
	f.Var(&o.spread, "account-spread", "time over which the sessions of an account restart after its limit")
	f.StringVar(&o.name, "name", "", "`name` of the session (default: from the command and the folder)")
	f.StringVar(&o.dir, "dir", "", "`folder` in which the commands run")
	f.BoolVar(&o.startNew, "new", false, "start a new session, even if one with this name could continue")
	f.StringArrayVar(&o.notify, "notify", nil, "`name` of a notifier of the configuration; can be repeated")
	f.StringVarP(&o.source.path, "config", "c", "", "the configuration `file`")
	f.StringVar(&o.source.data, "data", "", "`folder` for the state")
	f.BoolVarP(&o.silent, "quiet", "q", false, "print only tideover's own errors")
	f.BoolVar(&o.noCount, "no-countdown", false, "do not show a countdown on a terminal")
	f.BoolVar(&typeAtReset, "type-at-reset", false, "answer the question of an interactive session at a limit with waiting, and type the prompt to continue when the limit is over (default: watch.type-at-reset in the configuration)")
	groupFlags(f, "Session", "name", "dir", "new", "account", "account-spread", "notify", "type-at-reset", "config", "data", "quiet", "no-countdown")
	setGroupedHelp(cmd, "Command", "Limits", "Session")
	completeFixed(cmd, "detect", detect.Names()...)
	_ = cmd.MarkFlagDirname("dir")
	_ = cmd.MarkFlagDirname("data")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return exits{
		codeSuccess:       "the session was completed",
		codeOfCommand:     "the command's own code, if the session gave up or its user ended it; 1 if that code is 0",
		CodeOwn:           "tideover's own error: a bad flag, policy or folder, and nothing was started",
		codeNotExecutable: "the command is not executable; no session was created",
		codeNotFound:      "the command was not found; no session was created",
		codeSignal:        "ended by signal n: run the same command again to continue the session; 143: stopped by another command",
	}.declare(cmd)
}

// spec builds the session from the flags and checks it. The error lists all problems.
func (o *watchOptions) spec(cfg *config.Config, args []string, in *os.File) (*session.Spec, error) {
	s := &session.Spec{Start: args, ResumeAny: o.resumeAny, Restart: o.restart, Windows: o.windows, On: map[string]session.Action{}}
	s.Deadline, s.Account, s.AccountSpread = time.Duration(o.deadline), o.account, time.Duration(o.spread)
	var errs flagErrors
	var err error
	if o.resume != "" {
		s.Resume, err = session.Split(o.resume)
		errs.add("resume", err)
	}
	s.Pack, s.Rules, err = cfg.Detect(o.pack, session.CommandPack(args))
	errs.add("detect", err)
	s.Policy, err = namedPolicy(cfg, o.policy)
	errs.add("policy", err)
	if o.quiet != "" {
		s.Quiet, err = session.ParseHours(o.quiet)
		errs.add("quiet-hours", err)
	}
	if o.pauseAt != "" {
		s.PauseAt, err = parsePercent(o.pauseAt)
		errs.add("pause-at", err)
	}
	for _, text := range o.fallback {
		words, err := session.Split(text)
		if err == nil {
			var f session.Fallback
			f, err = session.ParseFallback(words)
			s.Fallback = append(s.Fallback, f)
		}
		errs.add("fallback", err)
	}
	s.FallbackAfter, s.FallbackPrompt = time.Duration(o.after), o.prompt
	for _, word := range o.on {
		reason, action, ok := strings.Cut(word, "=")
		if !ok {
			errs.add("on", fmt.Errorf("%q is not reason=action: want a value such as rate-limit=wait", word))
			continue
		}
		s.On[reason], err = session.ParseAction(action)
		errs.add("on", err)
	}
	s.Dir, err = existingFolder(cmp.Or(o.dir, "."))
	errs.add("dir", err)
	piped := in != nil && !process.IsTerminal(in)
	s.PlanResume(piped)
	s.PlanAccount(os.Getenv)
	if piped && s.ReadsPrompt() && len(errs) == 0 {
		if s.Stdin, err = readPrompt(in); err != nil {
			errs = append(errs, err)
		}
	}
	s.Name = cmp.Or(o.name, defaultSessionName(s.Dir, args, s.Stdin))
	errs.add("name", config.CheckSessionName(s.Name))
	if o.spread <= 0 {
		errs.add("account-spread", fmt.Errorf("%v is too short: want more than 0", time.Duration(o.spread)))
	}
	if o.windows < 1 {
		errs.add("windows", fmt.Errorf("%d is too small: want 1 or more", o.windows))
	}
	s.Fill()
	if err := s.Validate(); err != nil {
		errs = append(errs, asFlagErrors(err)...)
	}
	return s, errors.Join(errs...)
}

// parsePercent parses a percentage such as 90%.
func parsePercent(text string) (float64, error) {
	n, ok := textfmt.ParseFloatPercent(text)
	if !ok {
		return 0, fmt.Errorf("%q is not a percentage: want one such as 90%%", text)
	}
	return n, nil
}

// asFlagErrors splits a joined error about fields of the session into its parts, and names the
// flags in place of the fields.
func asFlagErrors(err error) (list []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		if f, ok := errors.AsType[*session.FieldError](e); ok && f.Field == "start" {
			e = fmt.Errorf("the command: %w", f.Err)
		} else {
			e = fmt.Errorf("--%w", e)
		}
		list = append(list, e)
	}
	return list
}

// namedPolicy returns the policy with this name in the configuration. If there is none, it parses
// text as a policy.
func namedPolicy(cfg *config.Config, text string) (retry.Policy, error) {
	if p, ok := cfg.Policies[text]; ok {
		return p, nil
	}
	return retry.Parse(text)
}

// existingFolder returns the absolute path of a folder, which must exist.
func existingFolder(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", dir)
	}
	return dir, err
}

// maxPrompt limits the bytes of a prompt on standard input, which is stored with the session.
const maxPrompt = 128 << 10

// readPrompt reads the prompt from standard input. The prompt is stored, so that the session can
// start with it again.
func readPrompt(in *os.File) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxPrompt+1))
	if err != nil {
		return "", fmt.Errorf("reading the prompt from standard input: %w", err)
	}
	if len(text) > maxPrompt {
		return "", fmt.Errorf("the prompt on standard input is longer than %d KiB: put it in a file and tell the assistant to read that", maxPrompt>>10)
	}
	if !utf8.Valid(text) {
		return "", errors.New("the prompt on standard input is not UTF-8: put it in a file and tell the assistant to read that")
	}
	return string(text), nil
}

// defaultSessionName derives the name of a session from the folder, the command and the prompt, so
// that the same command continues the same session.
func defaultSessionName(dir string, args []string, prompt string) string {
	text := dir + "\x00" + strings.Join(args, "\x00")
	if prompt != "" {
		text += "\x00\x00" + prompt
	}
	sum := sha256.Sum256([]byte(text))
	base := strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' {
			return c
		}
		return '-'
	}, strings.ToLower(filepath.Base(args[0])))
	return fmt.Sprintf("%.24s-%x", strings.TrimLeft(base, "-_"), sum[:3])
}
