// Package initial has the configuration files that `tideover init` writes: one for
// each case, with comments, that can be loaded as it is.
package initial

import (
	"embed"
	"path/filepath"
)

// Name is the file that tideover looks for first.
const Name = "tideover.yaml"

// Case is something to use tideover for.
type Case struct {
	Name  string
	About string

	next func(file, folder string) []Command
}

// Command is one to run, word by word.
type Command []string

// keyFile is the file that the case nip90 wants beside its own.
const keyFile = "provider.nsec"

// templates are the files.
//
//go:embed templates
var templates embed.FS

// Cases returns all of them, in the order in which they are offered.
func Cases() []Case {
	return []Case{
		{"workflow", "commands and requests, on a schedule or when asked", func(file, _ string) []Command {
			return []Command{serve(file), {"tideover", "run", "hello", "--wait"}}
		}},
		{"gateway", "a gateway before remote APIs, for clients in any language", func(file, _ string) []Command {
			return []Command{serve(file), {"tideover", "providers"}}
		}},
		{"session", "an assistant that is resumed when its limit is over", func(file, _ string) []Command {
			return []Command{serve(file), {"tideover", "sessions", "show", "todo"}}
		}},
		{"nip90", "a provider of tasks over Nostr", func(file, folder string) []Command {
			return []Command{{"tideover", "nip90", "keygen", "--out", filepath.Join(folder, keyFile)}, serve(file)}
		}},
		{"cluster", "several servers that share one state on NATS", func(file, _ string) []Command {
			return []Command{with(file, "tideover", "doctor"), serve(file)}
		}},
		{"all", "a part of everything", func(file, _ string) []Command {
			return []Command{with(file, "tideover", "config", "check"), serve(file)}
		}},
	}
}

// Find returns the case of the name.
func Find(name string) (c Case, ok bool) {
	for _, c := range Cases() {
		if c.Name == name {
			return c, true
		}
	}
	return c, false
}

// File returns the configuration.
func (c Case) File() ([]byte, error) { return templates.ReadFile("templates/" + c.Name + ".yaml") }

// Next returns the two commands to run when the configuration is in the file.
func (c Case) Next(file string) []Command { return c.next(file, filepath.Dir(file)) }

func serve(file string) Command { return with(file, "tideover", "serve") }

// with adds the file to a command, unless it is found anyway.
func with(file string, command ...string) Command {
	if filepath.Clean(file) == Name {
		return command
	}
	return append(command, "--config", file)
}
