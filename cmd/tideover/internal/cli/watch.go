package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/secret"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
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

The state is in a folder of its own. When watch is ended or killed, or the machine
is, the same command in the same folder goes on: same deadline, same counters.
"tideover sessions" shows, pauses, resumes and stops it from elsewhere.

{{.Session}} in a command is the id of the session, which is made up here. For
"claude -p" and "codex exec" the resume command is known; other commands need
--resume, or are started again as they are.

On a terminal the command has a terminal of its own and works as usual. Otherwise
its output is passed on, and the first command reads standard input.

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

  # from another window
  tideover sessions ls --watch
  tideover sessions stop NAME --tonight`

// watchOptions is what the flags of watch say.
type watchOptions struct {
	source    configFlags
	name      string
	resume    string
	resumeAny bool
	pack      string
	policy    string
	windows   int
	deadline  duration
	quiet     string
	account   string
	spread    duration
	on        []string
	dir       string
	notify    []string
	anew      bool
	silent    bool
	noCount   bool

	given []string // the flags as they were given, for whoever watches the session again
}

func newWatch(io Streams) *cobra.Command {
	o := &watchOptions{}
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
			return runWatch(ctx, io, o, args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.SortFlags = false
	f.StringVar(&o.resume, "resume", "", "`command` that resumes the session, with {{.Session}} in it; quotes work as in a shell, but there is none")
	f.BoolVar(&o.resumeAny, "resume-any", false, "the resume command finds the session by itself")
	f.StringVar(&o.pack, "detect", "", "`pack` of rules by which a stop is understood (default: by the command's name, or generic)")
	f.StringArrayVar(&o.on, "on", nil, "what follows a stop, as `reason=action`; reasons are "+strings.Join(session.Reasons(), ", ")+", actions "+strings.Join(session.Actions, ", "))
	group(f, "What to run", "resume", "resume-any", "detect", "on")
	f.StringVarP(&o.policy, "policy", "p", session.DefaultPolicy, "`policy` in text form, a preset with keys, or one of the configuration")
	f.IntVar(&o.windows, "windows", session.DefaultWindows, "how many stated resets are waited for")
	f.Var(&o.deadline, "deadline", "how long the whole session may take")
	f.StringVar(&o.quiet, "quiet-hours", "", "`hours` in which nothing is begun, such as 23:00-07:00, with a time zone or not")
	group(f, "How long", "policy", "windows", "deadline", "quiet-hours")
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
	group(f, "The session", "name", "dir", "new", "account", "account-spread", "notify", "config", "data", "quiet", "no-countdown")
	groupedHelp(cmd, "What to run", "How long", "The session")
	_ = cmd.RegisterFlagCompletionFunc("detect", cobra.FixedCompletions(detect.Names(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagDirname("dir")
	_ = cmd.MarkFlagDirname("data")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

// spec puts the session together, and checks it.
func (o *watchOptions) spec(cfg *config.Config, args []string) (*session.Spec, error) {
	s := &session.Spec{Start: args, ResumeAny: o.resumeAny, Windows: o.windows, On: map[string]session.Action{}}
	s.Deadline, s.Account, s.AccountSpread = time.Duration(o.deadline), o.account, time.Duration(o.spread)
	var errs []error
	flag := func(name string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", name, err))
		}
	}
	var err error
	if o.resume != "" {
		s.Resume, err = session.Split(o.resume)
		flag("resume", err)
	}
	s.Pack, s.Rules, err = cfg.Detect(o.pack, session.PackOf(args))
	flag("detect", err)
	s.Policy, err = namedPolicy(cfg, o.policy)
	flag("policy", err)
	if o.quiet != "" {
		s.Quiet, err = session.ParseHours(o.quiet)
		flag("quiet-hours", err)
	}
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
	if s.Name = o.name; s.Name == "" {
		s.Name = nameOf(s.Dir, args)
	}
	flag("name", config.CheckSessionName(s.Name))
	if o.spread <= 0 {
		flag("account-spread", fmt.Errorf("%v is not more than 0", time.Duration(o.spread)))
	}
	if o.windows < 1 {
		flag("windows", fmt.Errorf("%d is not 1 or more", o.windows))
	}
	s.Known()
	s.Fill()
	if err := s.Validate(); err != nil {
		errs = append(errs, flagged(err)...)
	}
	return s, errors.Join(errs...)
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

// nameOf returns the name of a session that has none: the same command in the same
// folder is the same session.
func nameOf(dir string, args []string) string {
	sum := sha256.Sum256([]byte(dir + "\x00" + strings.Join(args, "\x00")))
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
