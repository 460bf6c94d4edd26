// Command tideover retries commands, API calls and workflows until they succeed.
package main

import (
	"os"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
)

func main() {
	cli.Run(os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}).Now()
}
