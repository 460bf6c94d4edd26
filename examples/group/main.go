// Command group runs a group of devices that change one shared log, and
// conflict.
//
// Three acceptors run as separate processes and decide, epoch by epoch, whose
// update comes next. Ten devices propose at the same moment. Devices that lose
// learn the winning update, rebase, wait by one policy and try again. During
// the run one acceptor is killed and restarted. In the end every update is in
// the log, which is the same for all devices.
//
//	go run ./examples/group
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/tideover/tideover/contend"
	"github.com/tideover/tideover/internal/validate"
	"github.com/tideover/tideover/retry"
)

const usage = `Usage: group [flags]
       group acceptor -id N -dir FOLDER [-listen ADDRESS]

Without a verb it runs the demonstration: it starts the acceptors as separate
processes, lets all devices propose at once, kills one acceptor with SIGKILL
and restarts it, and prints which device commits what. The verb acceptor runs one
acceptor; the demonstration starts it for you.

Flags:
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs the program and returns its exit code. When it ends, for any reason, it stops
// the acceptors and removes its folder.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// After Notify, a write to a pipe without a reader returns an error instead
	// of ending the process. The signal itself is ignored: it also comes from
	// the connection of a killed acceptor.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)
	err := dispatch(ctx, args, &output{stdout, cancel}, stderr)
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	case ctx.Err() != nil: // the other errors follow from the end of the context
		fmt.Fprintln(stderr, "group:", context.Cause(ctx))
		return 1
	default:
		fmt.Fprintln(stderr, "group:", err)
		return 1
	}
}

// output cancels the program if its output cannot be written.
type output struct {
	io.Writer
	cancel context.CancelCauseFunc
}

// Write implements [io.Writer].
func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		o.cancel(err)
	}
	return n, err
}

// errUsage is an error that the flag package has already printed.
var errUsage = errors.New("usage")

func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == verbAcceptor {
		return acceptorMain(ctx, args[1:], os.Stdin, stdout, stderr)
	}
	d := demo{Out: stdout}
	flags := flag.NewFlagSet("group", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	flags.IntVar(&d.Devices, "devices", 10, "how many devices propose at once, 1 to 50")
	flags.IntVar(&d.Acceptors, "acceptors", 3, "how many acceptors decide, 3 to 9")
	policy := flags.String("policy", "contention attempts=11 attempt-timeout=2s", "the policy of a device's proposal")
	flags.Float64Var(&d.Contend.Scale, "scale", 1.5, "base of the waits in measured attempts; 0 keeps the policy's")
	if err := flags.Parse(args); err != nil {
		return errors.Join(errUsage, err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown verb %q: see group -h", flags.Arg(0))
	}
	var err error
	if d.Contend.Policy, err = retry.Parse(*policy); err != nil {
		return fmt.Errorf("-policy: %w", err)
	}
	if err := d.validate(); err != nil {
		return err
	}
	return d.run(ctx)
}

// validate returns every problem of the flags.
func (d *demo) validate() error {
	errs := validate.Problems{validateContend(d.Contend)}
	errs.Check(d.Devices >= 1 && d.Devices <= 50, "-devices: %d is not between 1 and 50", d.Devices)
	errs.Check(d.Acceptors >= 3 && d.Acceptors <= 9, "-acceptors: %d is not between 3 and 9", d.Acceptors)
	return errors.Join(errs...)
}

// validateContend rejects settings that an actor cannot use: it has no shared
// budget, and acceptors send no Retry-After.
func validateContend(c contend.Config) error {
	return errors.Join(c.Validate(), c.Policy.Refuse("a group", "budget", "throttle-base", "server-wait", "server-slack"))
}
