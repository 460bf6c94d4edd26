// Measure measures one round and prints it as lines of JSON.
//
//	measure -round 1 -seconds 4 -core 1 direct bare tuned
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/tideover/tideover/bench/gateway"
	"github.com/tideover/tideover/internal/benchreport"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	var b gateway.Bench
	set := flag.NewFlagSet("measure", flag.ContinueOnError)
	round := set.Int("round", 1, "number of the round, which says whose turn is first")
	seconds := set.Float64("seconds", 4, "of each measurement")
	set.StringVar(&b.Core, "core", "", "`number` of the core for the proxies; without it they have GOMAXPROCS=1")
	set.IntVar(&b.Connections, "connections", 64, "how many there are")
	set.IntVar(&b.Rate, "rate", 1600, "requests in a second, where latency is measured")
	set.StringVar(&b.Caddy, "caddy", "", "`path` of the program")
	set.StringVar(&b.Tideover, "tideover", "", "`path` of the program")
	set.Func("build", "a system that is another build of tideover, as `name=path`; may be repeated", func(text string) error {
		name, path, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("want name=path")
		}
		if b.Builds == nil {
			b.Builds = map[string]string{}
		}
		b.Builds[name] = path
		return nil
	})
	part := set.String("child", "", "be a `part` of the bench")
	upstream := set.String("upstream", "", "`address` behind that part")
	if err := set.Parse(args); err != nil {
		return err
	}
	if *part != "" {
		return gateway.Child(ctx, *part, *upstream, in, out)
	}
	if set.NArg() == 0 {
		return errors.New("no systems")
	}
	b.Length = time.Duration(*seconds * float64(time.Second))
	if b.Own, err = own(); err != nil {
		return err
	}
	if b.Dir, err = os.MkdirTemp("", "gateway-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.Dir)) }()
	lines := json.NewEncoder(out)
	return b.Round(ctx, *round, set.Args(), func(r benchreport.Result) error { return lines.Encode(r) })
}

// own returns a function for [gateway.Bench].Own: the command runs this program with the
// flag -child.
func own() (func(part, upstream string) gateway.Command, error) {
	path, err := os.Executable()
	return func(part, upstream string) gateway.Command {
		return gateway.Command{Args: []string{path, "-child", part, "-upstream", upstream}}
	}, err
}
