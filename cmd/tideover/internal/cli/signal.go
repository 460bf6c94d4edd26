package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
)

type signalOptions struct {
	remote
	workflow, key, data, file, id singleFlag
}

const signalLong = `Sends a signal to a run of a workflow that is code, and prints the id of the signal.
When the id is printed, the signal is stored: the run gets it when it waits for a
signal of this name, even if the server or this machine fails.

Of two signals with the same --id, the run gets one. So a script that does not know
whether a signal has arrived can send it again. A run that has ended takes no signals.

The run is named by its id, the beginning of one, or its key. --workflow and --key
name it exactly: no run whose id begins like the key is meant.`

const signalExample = `  tideover signal 01k9v3q0h2f8 paid
  tideover signal order-4711 paid --data '{"eur": 5}' --id payment-17
  tideover signal order-4711 paid --data-file payment.json
  tideover signal --workflow order --key order-4711 paid`

func newSignal(io Streams) *cobra.Command {
	o := &signalOptions{remote: newRemote(io)}
	cmd := &cobra.Command{
		Use:               "signal [flags] RUN NAME\n  tideover signal --workflow WORKFLOW --key KEY [flags] NAME",
		Short:             "Send a signal to a run",
		Long:              signalLong,
		Example:           signalExample,
		ValidArgsFunction: single(completeRuns(&o.remote, "waiting", "running")),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args); err != nil {
				return err
			}
			s, err := o.signal(args[len(args)-1])
			if err != nil {
				return err
			}
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				send := func() (control.Signaled, error) { return c.Signal(ctx, args[0], s) }
				if o.key.given {
					to := engine.RunKey{Workflow: o.workflow.text, Key: o.key.text}
					send = func() (control.Signaled, error) { return c.SignalKey(ctx, to, s) }
				}
				done, err := send()
				if err != nil {
					return err
				}
				return o.printJSONOrLine(done, "%s", done.ID)
			})
		},
	}
	o.workflow.kind, o.key.kind, o.data.kind, o.file.kind, o.id.kind = "name", "key", "JSON", "file", "id"
	f := cmd.Flags()
	f.Var(&o.data, "data", "the payload: JSON, @file, or - for standard input; without it, null")
	f.Var(&o.file, "data-file", "a file with the payload, as JSON")
	f.Var(&o.id, "id", "the id of the signal; without it, the server chooses one")
	f.Var(&o.workflow, "workflow", "the workflow of the run, with --key")
	f.Var(&o.key, "key", "the key of the run, with --workflow")
	completeNoFiles(cmd, "data", "id", "key")
	return o.command(cmd, exitsRun)
}

// check returns an error if flags and arguments contradict each other, or arguments are missing.
func (o *signalOptions) check(args []string) error {
	want := 2
	switch {
	case o.workflow.given != o.key.given:
		return errors.New("--workflow and --key name a run together: give both, or name the run")
	case o.key.given:
		want = 1
	}
	switch {
	case o.data.given && o.file.given:
		return errors.New("--data and --data-file can't be used together: give one of them")
	case len(args) < want && want == 2 && len(args) == 1:
		return errors.New("signal: no name of a signal given: want RUN NAME")
	case len(args) < want && want == 2:
		return errors.New("signal: no run given: want RUN NAME")
	case len(args) < want:
		return errors.New("signal: no name of a signal given")
	case len(args) > want:
		return fmt.Errorf("signal: unexpected argument %q", args[want])
	}
	return nil
}

// signal returns the signal that the flags describe.
func (o *signalOptions) signal(name string) (s control.Signal, err error) {
	s = control.Signal{Name: name, ID: o.id.text}
	text, flag := o.data.text, "data"
	if o.file.given {
		text, flag = "@"+o.file.text, "data-file"
	}
	if s.Data, err = readInput(text, o.io.In); err != nil {
		return s, fmt.Errorf("--%s: %w", flag, err)
	}
	return s, nil
}

const callbackLong = `Prints a URL with which another system sends one signal to the run. The URL is signed,
expires, and can be used once: the other system sends a POST request to it, and the
body is the payload of the signal. It needs no token.`

const callbackExample = `  tideover callback 01k9v3q0h2f8 paid
  tideover callback order-4711 paid --expires 2h`

func newCallback(io Streams) *cobra.Command {
	o := newRemote(io)
	expires := duration(admin.DefaultExpiry)
	cmd := &cobra.Command{
		Use:               "callback [flags] RUN NAME",
		Short:             "Make a URL with which another system sends a signal",
		Long:              callbackLong,
		Example:           callbackExample,
		Args:              runAnd("name of a signal", 2, 2),
		ValidArgsFunction: single(completeRuns(&o, "waiting", "running")),
		RunE: func(cmd *cobra.Command, args []string) error {
			if expires <= 0 || time.Duration(expires) > admin.MaxExpiry {
				return fmt.Errorf("--expires: %v is not above 0 and at most 30d", time.Duration(expires))
			}
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				made, err := c.Callback(ctx, args[0], args[1], time.Duration(expires))
				if err != nil {
					return err
				}
				return o.printJSONOrLine(made, "%s", made.URL)
			})
		},
	}
	cmd.Flags().Var(&expires, "expires", "how long the URL is valid, at most 30d")
	completeNoFiles(cmd, "expires")
	return o.command(cmd, exitsRun)
}

// runAnd returns a check that accepts a run and further arguments, from least to most in all. what is
// the name of the second argument in error messages.
func runAnd(what string, least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("%s: no run given: name one", cmd.Name())
		case len(args) < least:
			return fmt.Errorf("%s: no %s given", cmd.Name(), what)
		case len(args) > most:
			return fmt.Errorf("%s: unexpected argument %q", cmd.Name(), args[most])
		}
		return nil
	}
}

// answerOptions holds the flags of the commands that answer a question of a run.
type answerOptions struct {
	remote
	comment string
}

const answerText = `
Without QUESTION, the open question of the run is answered; if there are several, the
error lists them. 'tideover runs --asking' lists the runs that ask, and 'tideover
show' prints the question with its choices and who may answer it.

You answer as the user whose token is in $TIDEOVER_TOKEN; over the socket as 'cli:'
and your user name. Your name and your comment are in the history of the run.`

func newApprove(io Streams) *cobra.Command {
	return newFixedAnswer(io, engine.Approve, "Approve what a run asks for", "  tideover approve 01k9v3q0h2f8\n  tideover approve order-4711 ship --comment 'in stock again'")
}

func newReject(io Streams) *cobra.Command {
	return newFixedAnswer(io, engine.Reject, "Reject what a run asks for", "  tideover reject 01k9v3q0h2f8\n  tideover reject order-4711 --comment 'the address is wrong'")
}

// newFixedAnswer returns the command that answers a question with the choice that it is named after.
func newFixedAnswer(io Streams, choice, short, example string) *cobra.Command {
	o := &answerOptions{remote: newRemote(io)}
	return o.answerCommand(&cobra.Command{
		Use:     choice + " [flags] RUN [QUESTION]",
		Short:   short,
		Long:    fmt.Sprintf("Answers the question of a run with %q.\n%s", choice, answerText),
		Example: example,
		Args:    runAnd("question", 1, 2),
	}, func(args []string) (question, with string) {
		if len(args) == 2 {
			question = args[1]
		}
		return question, choice
	})
}

func newAnswer(io Streams) *cobra.Command {
	o := &answerOptions{remote: newRemote(io)}
	return o.answerCommand(&cobra.Command{
		Use:     "answer [flags] RUN [QUESTION] CHOICE",
		Short:   "Answer a question of a run",
		Long:    "Answers the question of a run with one of its choices.\n" + answerText,
		Example: "  tideover answer 01k9v3q0h2f8 green\n  tideover answer order-4711 colour green --comment 'as in the catalogue'",
		Args:    runAnd("choice", 2, 3),
	}, func(args []string) (question, choice string) {
		if len(args) == 3 {
			question = args[1]
		}
		return question, args[len(args)-1]
	})
}

// answerCommand completes a command that answers a question. parse returns the question, which may be
// empty, and the choice.
func (o *answerOptions) answerCommand(cmd *cobra.Command, parse func(args []string) (question, choice string)) *cobra.Command {
	cmd.ValidArgsFunction = single(completeAsking(&o.remote))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		question, choice := parse(args)
		return o.withClient(cmd, func(ctx context.Context, c *client.Client) error {
			return o.answer(ctx, c, args[0], question, control.Reply{Choice: choice, Words: o.comment})
		})
	}
	cmd.Flags().StringVar(&o.comment, "comment", "", "your `text` about it, for the workflow and the history")
	cmd.Flags().StringVar(&o.comment, "words", "", "")
	_ = cmd.Flags().MarkHidden("words")
	completeNoFiles(cmd, "comment")
	return o.command(cmd, exitsRun)
}

// answer answers a question of a run; "" means the open one.
func (o *answerOptions) answer(ctx context.Context, c *client.Client, run, question string, r control.Reply) error {
	if question == "" {
		info, err := c.Get(ctx, run)
		if err != nil {
			return err
		}
		if question, err = control.OnlyQuestion(info); err != nil {
			return &codedError{err, CodeOwn}
		}
	}
	out, err := c.Answer(ctx, run, question, r)
	if err != nil {
		return err
	}
	return o.printJSONOrLine(out, "%s %s: %s", out.ID, question, r.Choice)
}

// completeAsking completes the ids of runs that ask a question.
func completeAsking(r *remote) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeFromServer(r, func(ctx context.Context, c *client.Client) (list []cobra.Completion) {
			page, _ := c.List(ctx, control.Filter{Asking: true, Limit: 100})
			for _, run := range page.Runs {
				if strings.HasPrefix(run.ID, prefix) {
					list = append(list, cobra.CompletionWithDesc(run.ID, visible(run.Workflow)))
				}
			}
			return list
		})
	}
}

// questions adds the open questions of a run, and the commands to answer them.
func (p *runDetails) questions() {
	open := control.Questions(p.info)
	for _, s := range open {
		q := s.Question
		p.line("\n%s  %s", p.paint("1", "asks "+visible(s.Name)), p.paint("33", strings.ReplaceAll(visibleLines(q.Text), "\n", "\n  ")))
		p.field("choices", strings.Join(q.Choices, ", "))
		p.field("for", strings.Join(q.Who, ", "))
		if s.Next != nil {
			after := "; without an answer by then, the question fails"
			if q.Default != "" {
				after = "; then the answer is " + q.Default
			}
			p.field("until", p.moment(s.Next)+after)
		}
		name := ""
		if len(open) > 1 {
			name = " " + s.Name
		}
		for _, choice := range q.Choices {
			verb, argument := "answer", " "+quoted(choice)
			if choice == engine.Approve || choice == engine.Reject {
				verb, argument = choice, ""
			}
			p.field("to answer", "tideover "+verb+" "+p.info.ID+name+argument)
		}
	}
}

// quoted returns a word for a shell, in quotes if necessary.
func quoted(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// answerLine describes the answer to the question of an operation; "" if it has none.
func answerLine(s *engine.StepInfo) string {
	a, ok := control.AnswerOf(s)
	if !ok {
		return ""
	}
	text := a.Choice + ", because there was no answer in time"
	if a.By != "" {
		text = a.Choice + " by " + a.By
	}
	return visible(text) + optional(": ", visible(textfmt.ClipWithin(firstLine(a.Words), 100, "…")), "")
}
