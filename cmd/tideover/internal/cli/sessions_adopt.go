package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/adopt"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
)

const sessionsAdoptLong = `Lists sessions of Claude Code, Codex and opencode that stopped at a limit and were not
started by tideover, from the records of these assistants. With IDs, or with --all, it
resumes them when their limit is over, each in its folder, without a terminal.

A session is adopted only if the last entry of its record is a limit, no process has it
open, and nothing came after. In doubt it is left alone; the list says why. This is
checked again before it is resumed. The records are only read. If one was written by an
unknown version, nothing is adopted; --assistant selects the assistants that are read.

An adopted session is a session of a watch, and the other commands on sessions control
it. It waits with the other sessions of its account. The command runs until all adopted
sessions have ended; if it is interrupted, run it again: they continue. Their output is
stored; 'tideover sessions logs' prints it. A session is resumed with the permissions
that its record names.

The newest 500 records of each assistant are read, if they are not older than 9 days.`

const sessionsAdoptExample = `  tideover sessions adopt
  tideover sessions adopt --all
  tideover sessions adopt 5f0c9d1e-0b1a-4d0e-9d0a-3a1d8f6f2b11 --notify phone
  tideover sessions adopt --json | jq -r '.sessions[] | select(.left_alone == null) | .id'`

// adoption holds the flags of sessions adopt, and what it knows.
type adoption struct {
	sessionsOptions
	watch      watchOptions
	adoptAll   bool
	assistants []string

	cfg      *config.Config
	redactor secret.Redactor
	records  adopt.Reader
}

// adoptable is a session that can be adopted, or that is left alone.
type adoptable struct {
	adopt.Session
	Name    string `json:"name"` // of the session when it is adopted
	Account string `json:"account,omitempty"`
	State   string `json:"state,omitempty"` // if it was adopted before

	spec *session.Spec
}

func newSessionsAdopt(io Streams) *cobra.Command {
	o := &adoption{sessionsOptions: sessionsOptions{remote: newRemote(io)}}
	cmd := &cobra.Command{
		Use: "adopt [flags] [ID...]", Short: "Resume sessions that stopped at a limit outside of tideover", Long: sessionsAdoptLong, Example: sessionsAdoptExample,
		Args: cobra.ArbitraryArgs, ValidArgsFunction: o.completeIDs,
		RunE: func(cmd *cobra.Command, ids []string) error {
			if o.adoptAll && len(ids) > 0 {
				return errors.New("--all and an ID can't be used together")
			}
			if err := o.load(); err != nil {
				return err
			}
			return o.withHosts(cmd, func(ctx context.Context, hosts []*sessionHost) error {
				return o.run(ctx, hosts, ids)
			})
		},
	}
	f := orderedFlags(cmd)
	f.BoolVar(&o.adoptAll, "all", false, "adopt all sessions that are not left alone")
	f.StringArrayVar(&o.assistants, "assistant", nil, "read only the records of this `assistant`: "+strings.Join(adopt.Assistants(), ", ")+"; can be repeated")
	f.StringVarP(&o.watch.policy, "policy", "p", session.DefaultPolicy, "`policy` in text form, a preset with keys, or the name of one in the configuration")
	f.IntVar(&o.watch.windows, "windows", session.DefaultWindows, "maximum number of limits with a stated end to wait for")
	f.StringVar(&o.watch.account, "account", "", "`name` of the account whose limit is shared with other sessions; none for no account (default: the assistant's)")
	o.watch.spread = duration(account.DefaultSpread)
	f.Var(&o.watch.spread, "account-spread", "time over which the sessions of an account restart after its limit")
	f.StringArrayVar(&o.watch.notify, "notify", nil, "`name` of a notifier of the configuration; can be repeated")
	completeFixed(cmd, "assistant", adopt.Assistants()...)
	return exits{CodeFailed: "a session gave up or was stopped, or one of the IDs was left alone"}.declare(o.command(cmd))
}

// load reads the configuration.
func (o *adoption) load() (err error) {
	for _, name := range o.assistants {
		if !slices.Contains(adopt.Assistants(), name) {
			return fmt.Errorf("--assistant: the records of %q can't be read: want %s", name, strings.Join(adopt.Assistants(), ", "))
		}
	}
	o.watch.source = configFlags{path: o.config}
	if o.cfg, _, err = o.watch.source.load(&o.redactor); err != nil {
		return err
	}
	return o.watch.checkNotifiers(o.cfg)
}

// run lists the sessions, or adopts those with the ids.
func (o *adoption) run(ctx context.Context, hosts []*sessionHost, ids []string) error {
	found, list, err := o.find(ctx, hosts)
	if err != nil {
		return err
	}
	if !o.adoptAll && len(ids) == 0 {
		result := map[string]any{"sessions": list, "problems": append([]adopt.Problem{}, found.Problems...), "not_read": found.NotRead}
		return o.printRendered(result, func(s *screen) []string { return renderAdoptable(list, found, s) })
	}
	if err := found.UnknownVersion(); err != nil {
		return &codedError{fmt.Errorf("nothing is adopted: %w; --assistant selects the assistants whose records are read", err), CodeOwn}
	}
	chosen, err := o.choose(list, ids)
	if err != nil {
		return err
	}
	return o.adopt(ctx, chosen)
}

// choose returns the sessions with the ids, or all with --all. An id may be cut if it is clear.
func (o *adoption) choose(list []adoptable, ids []string) (chosen []adoptable, err error) {
	if o.adoptAll {
		return list, nil
	}
	for _, id := range ids {
		var matches []adoptable
		for _, a := range list {
			if a.ID == id || len(id) >= 6 && strings.HasPrefix(a.ID, id) || a.Name == id {
				matches = append(matches, a)
			}
		}
		switch {
		case len(matches) == 0:
			return nil, control.NewError(control.CodeNotFound, fmt.Sprintf("no session with the id %q has stopped at a limit", id), "'tideover sessions adopt' lists them")
		case len(matches) > 1:
			problem := control.NewError(control.CodeAmbiguous, fmt.Sprintf("%q matches %d sessions", id, len(matches)), "give a whole id")
			for _, a := range matches {
				problem.Candidates = append(problem.Candidates, a.ID)
			}
			return nil, problem
		case !slices.ContainsFunc(chosen, func(a adoptable) bool { return a.Name == matches[0].Name }):
			chosen = append(chosen, matches[0])
		}
	}
	return chosen, nil
}

// find returns the sessions in the records, and those that were adopted before and have not ended.
func (o *adoption) find(ctx context.Context, hosts []*sessionHost) (found adopt.Found, list []adoptable, err error) {
	if found, err = o.records.Find(time.Now(), o.assistants...); err != nil {
		return found, nil, err
	}
	live, _, _ := querySessions(ctx, hosts) // those of a host that does not answer are not known
	unwatched := unwatchedSessions(ctx, watchFolders(o.config), live)
	list = []adoptable{}
	for _, s := range found.Sessions {
		a, err := o.describe(s)
		if err != nil {
			return found, nil, err
		}
		if a.LeftAlone == "" || a.Open {
			a.checkOthers(live, unwatched, o.cfg)
		}
		list = append(list, a)
	}
	for i := range unwatched {
		u := &unwatched[i]
		m, ok := readAdopted(u.folder)
		if !ok || u.State != notWatched || len(o.assistants) > 0 && !slices.Contains(o.assistants, m.Session.Assistant) {
			continue
		}
		a, err := o.describe(m.Session)
		if err != nil {
			return found, nil, err
		}
		a.State = notWatched
		list = slices.DeleteFunc(list, func(b adoptable) bool { return b.Name == a.Name })
		list = append(list, a)
	}
	return found, list, nil
}

// describe returns a session of the records with its name, its account and the session of tideover
// that resumes it.
func (o *adoption) describe(s adopt.Session) (a adoptable, err error) {
	sum := sha256.Sum256([]byte(s.Assistant + "\x00" + s.ID))
	a = adoptable{Session: s, Name: fmt.Sprintf("%s-%x", s.Assistant, sum[:4])}
	spec := &session.Spec{
		Name: a.Name, Dir: s.Dir, Start: s.Command, Resume: s.Resume, SessionID: s.ID, Windows: o.watch.windows,
		Account: o.watch.account, AccountSpread: time.Duration(o.watch.spread),
		Env: map[string]string{"PWD": s.Dir}, // opencode uses it, and not its working folder
	}
	for _, line := range s.Env {
		name, value, _ := strings.Cut(line, "=")
		spec.Env[name] = value
	}
	if spec.Pack, spec.Rules, err = o.cfg.Detect("", s.Pack); err != nil {
		return a, err
	}
	if spec.Policy, err = namedPolicy(o.cfg, o.watch.policy); err != nil {
		return a, fmt.Errorf("--policy: %w", err)
	}
	spec.PlanResume(false)
	spec.Fill()
	a.spec, a.Account = spec, spec.AccountName()
	if err := spec.Validate(); err != nil {
		return a, errors.Join(asFlagErrors(err)...)
	}
	return a, nil
}

// checkOthers sets why the session is left alone if a session of tideover runs it, or may have
// started it.
func (a *adoptable) checkOthers(live []hostedSession, unwatched []unwatchedSession, cfg *config.Config) {
	for _, s := range live {
		if (s.Session == a.ID || s.Name == a.Name) && !s.Over() { // before its first command, a session has no id
			a.State, a.LeftAlone = s.State, fmt.Sprintf("session %s of %s runs it", s.Name, s.In)
			return
		}
	}
	if a.LeftAlone != "" {
		return
	}
	for i := range unwatched {
		s := &unwatched[i]
		if m, ok := readAdopted(s.folder); ok && m.Session.ID == a.ID {
			continue // it was adopted before
		}
		began := s.Ended == nil || !s.Ended.Before(a.Limited)
		if began && a.spec.SharesFolder([]session.Command{{Args: s.Command, Dir: s.Dir}}) {
			a.LeftAlone = fmt.Sprintf("session %s of watch worked in its folder, and may have started it; continue that one with: %s", s.Name, s.watchCommand())
			return
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Sessions)) {
		if a.spec.SharesFolder(cfg.Sessions[name].Commands()) {
			a.LeftAlone = "session " + name + " of the configuration works in its folder, and may have started it"
			return
		}
	}
}

func renderAdoptable(list []adoptable, found adopt.Found, s *screen) (lines []string) {
	t := &table{heads: []string{"ID", "ASSISTANT", "ACCOUNT", "STOPPED", "RESET", "FOLDER"}}
	for _, a := range list {
		reset := "not stated"
		if !a.Reset.IsZero() {
			reset = s.stamp(a.Reset)
		}
		t.add(plain(a.ID), plain(a.Assistant), plain(a.Account), plain(s.stamp(a.Limited)), cell{reset, "33"}, plain(a.Dir))
		below := a.Line
		switch {
		case a.LeftAlone != "":
			below = "left alone: " + a.LeftAlone
		case a.State != "":
			below = "adopted as " + a.Name + ", and " + a.State
		}
		t.below = append(t.below, below)
	}
	if lines = t.render(s); len(list) == 0 {
		lines = []string{"no session has stopped at a limit outside of tideover"}
	}
	for _, p := range found.Problems {
		lines = append(lines, s.paint("2", visible("not read: "+p.Record+": "+p.Problem)))
	}
	if found.NotRead > 0 {
		lines = append(lines, s.paint("2", textfmt.PluralOf(found.NotRead, "older record was not read", "older records were not read")))
	}
	if found.UnknownVersion() != nil {
		lines = append(lines, "nothing is adopted as long as a record has an unknown version; --assistant selects the assistants that are read")
	}
	return lines
}

// completeIDs completes the ids of sessions that can be adopted.
func (o *adoption) completeIDs(_ *cobra.Command, args []string, prefix string) (ids []cobra.Completion, _ cobra.ShellCompDirective) {
	found, err := (&adopt.Reader{Env: os.Getenv}).Find(time.Now(), o.assistants...)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, s := range found.Sessions {
		if s.LeftAlone == "" && strings.HasPrefix(s.ID, prefix) && !slices.Contains(args, s.ID) {
			ids = append(ids, cobra.CompletionWithDesc(visible(s.ID), visible(s.Assistant+" in "+s.Dir)))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
