// Caddy runs the parts of Caddy that form a reverse proxy, with the JSON
// configuration in the given file.
//
// It is a separate module, outside the workspace: compiling it takes minutes,
// and its two hundred modules would affect the versions of all others.
package main

import (
	"fmt"
	"os"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "caddy:", err)
		os.Exit(1)
	}
	select {} // until it is killed
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%d arguments: want one file", len(args))
	}
	config, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	return caddy.Load(config, true)
}
