package cli

import (
	"context"
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
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

const watchLong = `Keeps a long command going that stops for a while: an assistant that runs into a
usage limit, or anything else.

When the command ends, its exit code and the last lines of its output say why. A
limit with a stated end is waited for, and then the same session is resumed; a
crash or a limit without one is retried by the policy; what no wait can help is
given up. "tideover detect" shows what is understood of a file.

A stated end spends one of the windows and no attempt; everything else spends an
attempt. An attempt that lasts as long as the policy's reset-after clears the
attempts, never the windows.

Sessions of one account share its limit: a stated end holds all of them, and after a
limit without one only one at a time finds out whether it is over. --account names
the account; unless said, it is that of the assistant.

With --fallback codex, another assistant works in the same folder while a stated limit
lasts longer than --fallback-after. After the reset the session goes on as usual.

The state is in a folder of its own. When watch is ended or killed, or the machine
is, the same command in the same folder goes on: same deadline, same counters.
"tideover sessions" shows, pauses, resumes and stops it from elsewhere.

{{.Session}} in a command is the id of the session: it is made up here, or read from
the output of a command that states its own. For "claude -p", "codex exec" and
"gemini -p" the resume command is known, also in sh -c. An assistant that can't be
resumed is said to be so at the start, and gives up instead of running its first
prompt again; give --resume, or --restart. Other commands are run again as they are,
unless --resume is given.

On a terminal the command has a terminal of its own and works as usual, Ctrl-Z
included. If it is interactive and a limit appears on its screen, the notifiers are
told and "tideover sessions" shows it. Nothing is typed, unless --type-at-reset or the
configuration says so: then "Continue." and Enter are, when the stated end is over, the
message still stands, and nobody has typed since. Off a terminal the output is passed
on, and the command that starts the session reads standard input; those that resume it
do not.

Exit codes:
  0        the session was completed
  N        the command's own code when the session gave up or was ended by its user;
           1 if the command exited with 0 all the same
  125      an error of ours: a bad flag, policy or folder, and nothing was started
  126/127  the command is not executable, or not found; there is no session then
  128+n    signal n told us to end; the session goes on the next time
  143      the session was stopped from elsewhere`

const watchExample = `  # an assistant over night; when its quota is used up, it goes on with the next one
  tideover watch -- claude -p "Work through TODO.md"

  # any command, with its own way to resume
  tideover watch --detect generic --resume './job --continue {{.Session}}' -- ./job --id {{.Session}}

  # at most four windows, nothing between 23:00 and 07:00, and a message at the end
  tideover watch --windows 4 --quiet-hours 23:00-07:00 --notify phone -- claude -p "Port it to Go"

  # interactive; a message when it runs into a limit, and "Continue." when that is over
  tideover watch --notify phone --type-at-reset -- claude

  # codex works in the folder while a limit of claude lasts longer than two hours
  tideover watch --fallback codex --fallback-after 2h -- claude -p "Work through TODO.md"

  # from another window
  tideover sessions ls --watch
  tideover sessions stop NAME --tonight`

// watchOptions is what the flags of watch say.
type watchOptions struct {
	source    configFlags
	name      string
	resume    string
	resumeAny bool
	restart   bool
	pack      string
	policy    string
	windows   int
	deadline  duration
	quiet     string
	pauseAt   string
	account   string
	spread    duration
	fallback  []string
	after     duration
	prompt    string
	on        []string
	dir       string
	notify    []string
	anew      bool
	silent    bool
	noCount   bool

	typeAtReset *bool // nil means as the configuration says

	given []string // the flags as they were given, for whoever watches the session again
}

func newWatch(std Streams) *cobra.Command {
	o := &watchOptions{}
	var typeAtReset bool
	cmd := &cobra.Command{
		Use:                   "watch [flags] [--] command [argument...]",
		Short:                 "Keep a session going through its limits",
		Long:                  watchLong,
		Example:               watchExample,
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("watch: no command")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if ctx == nil {
				ctx = context.Background()
			}
			o.given = given(cmd.Flags())
			if cmd.Flags().Changed("type-at-reset") {
				o.typeAtReset = &typeAtReset
			}
			return runWatch(ctx, std, o, args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.SortFlags = false
	f.StringVar(&o.resume, "resume", "", "`command` that resumes the session, with {{.Session}} in it; quotes work as in a shell, but there is none")
	f.BoolVar(&o.resumeAny, "resume-any", false, "the resume command finds the session by itself")
	f.BoolVar(&o.restart, "restart", false, "run the start command again, with its first prompt, instead of resuming the session")
	f.StringVar(&o.pack, "detect", "", "`pack` of rules by which a stop is understood (default: by the command's name, or generic)")
	f.StringArrayVar(&o.on, "on", nil, "what follows a stop, as `reason=action`; reasons are "+strings.Join(session.Reasons(), ", ")+", actions "+strings.Join(session.Actions, ", "))
	f.StringArrayVar(&o.fallback, "fallback", nil, "`assistant` that works in the folder while a stated limit lasts: claude, codex or gemini, or a command with {{.Prompt}}; may be given again")
	f.StringVar(&o.prompt, "fallback-prompt", "", "`prompt` of an assistant that takes over, with {{.Task}}, {{.Assistant}} and {{.Until}}")
	group(f, "What to run", "resume", "resume-any", "restart", "detect", "on", "fallback", "fallback-prompt")
	f.StringVarP(&o.policy, "policy", "p", session.DefaultPolicy, "`policy` in text form, a preset with keys, or one of the configuration")
	f.IntVar(&o.windows, "windows", session.DefaultWindows, "how many stated resets are waited for")
	f.Var(&o.deadline, "deadline", "how long the whole session may take")
	f.StringVar(&o.quiet, "quiet-hours", "", "`hours` in which nothing is begun, such as 23:00-07:00, with a time zone or not")
	f.StringVar(&o.pauseAt, "pause-at", "", "`percent` of the quota, such as 90%, at which nothing is begun until its reset (codex and claude)")
	f.Var(&o.after, "fallback-after", "how long a stated limit must last for a fallback to begin (default 1h)")
	group(f, "How long", "policy", "windows", "deadline", "quiet-hours", "pause-at", "fallback-after")
	f.StringVar(&o.account, "account", "", "`name` of the account whose limit is shared with other sessions; none for no account (default: that of the assistant)")
	o.spread = duration(account.DefaultSpread)
	f.Var(&o.spread, "account-spread", "time over which the sessions of an account go on after its limit")
	f.StringVar(&o.name, "name", "", "`name` of the session (default: from the command and the folder)")
	f.StringVar(&o.dir, "dir", "", "`folder` in which the commands run")
	f.BoolVar(&o.anew, "new", false, "begin another session, even if one of the name could go on")
	f.StringArrayVar(&o.notify, "notify", nil, "`name` of a notifier of the configuration; may be given again")
	f.StringVarP(&o.source.path, "config", "c", "", "the configuration `file`")
	f.StringVar(&o.source.data, "data", "", "`folder` that keeps the state")
	f.BoolVarP(&o.silent, "quiet", "q", false, "say nothing but errors of our own")
	f.BoolVar(&o.noCount, "no-countdown", false, "no countdown on a terminal")
	f.BoolVar(&typeAtReset, "type-at-reset", false, "type the prompt to continue into an interactive session when a limit on its screen is over (default: watch.type-at-reset of the configuration)")
	group(f, "The session", "name", "dir", "new", "account", "account-spread", "notify", "type-at-reset", "config", "data", "quiet", "no-countdown")
	groupedHelp(cmd, "What to run", "How long", "The session")
	_ = cmd.RegisterFlagCompletionFunc("detect", cobra.FixedCompletions(detect.Names(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagDirname("dir")
	_ = cmd.MarkFlagDirname("data")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

// spec puts the session together, and checks it.
func (o *watchOptions) spec(cfg *config.Config, args []string, in *os.File) (*session.Spec, error) {
	s := &session.Spec{Start: args, ResumeAny: o.resumeAny, Restart: o.restart, Windows: o.windows, On: map[string]session.Action{}}
	s.Deadline, s.Account, s.AccountSpread = time.Duration(o.deadline), o.account, time.Duration(o.spread)
	var errs []error
	flag := func(name string, err error) {
		if err != nil && name != "" {
			err = fmt.Errorf("--%s: %w", name, err)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	var err error
	if o.resume != "" {
		s.Resume, err = session.Split(o.resume)
		flag("resume", err)
	}
	s.Pack, s.Rules, err = cfg.Detect(o.pack, session.CommandPack(args))
	flag("detect", err)
	s.Policy, err = namedPolicy(cfg, o.policy)
	flag("policy", err)
	if o.quiet != "" {
		s.Quiet, err = session.ParseHours(o.quiet)
		flag("quiet-hours", err)
	}
	if o.pauseAt != "" {
		s.PauseAt, err = parsePercent(o.pauseAt)
		flag("pause-at", err)
	}
	for _, text := range o.fallback {
		words, err := session.Split(text)
		if err == nil {
			var f session.Fallback
			f, err = session.ParseFallback(words)
			s.Fallback = append(s.Fallback, f)
		}
		flag("fallback", err)
	}
	s.FallbackAfter, s.FallbackPrompt = time.Duration(o.after), o.prompt
	for _, word := range o.on {
		reason, action, ok := strings.Cut(word, "=")
		if !ok {
			flag("on", fmt.Errorf("%q is not like rate-limit=wait", word))
			continue
		}
		s.On[reason], err = session.ParseAction(action)
		flag("on", err)
	}
	dir := o.dir
	if dir == "" {
		dir = "."
	}
	s.Dir, err = folder(dir)
	flag("dir", err)
	piped := in != nil && !process.IsTerminal(in)
	s.PlanResume(piped)
	if piped && s.ReadsPrompt() && len(errs) == 0 {
		s.Stdin, err = readPrompt(in)
		flag("", err)
	}
	if s.Name = o.name; s.Name == "" {
		s.Name = nameOf(s.Dir, args, s.Stdin)
	}
	flag("name", config.CheckSessionName(s.Name))
	if o.spread <= 0 {
		flag("account-spread", fmt.Errorf("%v is not more than 0", time.Duration(o.spread)))
	}
	if o.windows < 1 {
		flag("windows", fmt.Errorf("%d is not 1 or more", o.windows))
	}
	s.Fill()
	if err := s.Validate(); err != nil {
		errs = append(errs, flagged(err)...)
	}
	return s, errors.Join(errs...)
}

// typesAtReset reports whether the prompt to continue is typed into an interactive session.
func (o *watchOptions) typesAtReset(cfg *config.Config) bool {
	if o.typeAtReset != nil {
		return *o.typeAtReset
	}
	return cfg.Watch.TypeAtReset
}

// parsePercent reads a percentage such as 90%.
func parsePercent(text string) (float64, error) {
	n, ok := textfmt.ParseFloatPercent(text)
	if !ok {
		return 0, fmt.Errorf("%q is not a percentage such as 90%%", text)
	}
	return n, nil
}

// flagged says what is wrong in terms of the flags.
func flagged(err error) (list []error) {
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

// namedPolicy reads a policy, which may be one of the configuration.
func namedPolicy(cfg *config.Config, text string) (retry.Policy, error) {
	if p, ok := cfg.Policies[text]; ok {
		return p, nil
	}
	return retry.Parse(text)
}

// folder returns the path of a folder that is there.
func folder(dir string) (string, error) {
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

// maxPrompt is how much of a prompt is read from standard input. It is stored with
// the session.
const maxPrompt = 128 << 10

// readPrompt reads the prompt of a session, so that the session can begin with it
// again.
func readPrompt(in *os.File) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxPrompt+1))
	if err != nil {
		return "", fmt.Errorf("the prompt on standard input: %w", err)
	}
	if len(text) > maxPrompt {
		return "", fmt.Errorf("the prompt on standard input: it is longer than %d KiB: put it in a file, and tell the assistant to read that", maxPrompt>>10)
	}
	if !utf8.Valid(text) {
		return "", errors.New("the prompt on standard input: it is not UTF-8: put it in a file, and tell the assistant to read that")
	}
	return string(text), nil
}

// nameOf returns the name of a session that has none: the same command with the
// same prompt in the same folder is the same session.
func nameOf(dir string, args []string, prompt string) string {
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

// load loads the configuration, which need not be there.
func (o *watchOptions) load(redactor *secret.Redactor) (*config.Config, error) {
	src, err := o.source.source(redactor)
	if err != nil {
		return nil, err
	}
	return config.Load(src)
}
