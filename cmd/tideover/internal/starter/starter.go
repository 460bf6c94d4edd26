// Package starter has the configuration files that `tideover init` writes: one for each use case,
// with comments. Each file is valid without changes.
package starter

import (
	"embed"
	"path/filepath"
)

// Name is the name of the configuration file that tideover looks for first.
const Name = "tideover.yaml"

// Case is a use case of tideover, with its configuration file.
type Case struct {
	Name  string // the argument of init
	About string // one line for the menu

	next func(file, folder string) []Command // returns the commands to run next; folder contains file
}

// Command is a command line as a list of words.
type Command []string

// keyFile is the name of the key file that the configuration of the case nip90 refers to.
const keyFile = "provider.nsec"

// templates has the configuration files, named after their cases.
//
//go:embed templates
var templates embed.FS

// Cases returns all cases, in the order of the menu.
func Cases() []Case {
	return []Case{
		{"workflow", "commands and HTTP requests, on a schedule or on demand", func(file, _ string) []Command {
			return []Command{serve(file), {"tideover", "run", "hello", "--wait"}}
		}},
		{"gateway", "a reliability proxy in front of HTTP and LLM APIs", func(file, _ string) []Command {
			return []Command{serve(file), {"tideover", "providers"}}
		}},
		{"session", "an assistant that is resumed after its usage limit", func(file, _ string) []Command {
			return []Command{serve(file), {"tideover", "sessions", "show", "todo"}}
		}},
		{"nip90", "a provider of tasks on Nostr", func(file, folder string) []Command {
			return []Command{{"tideover", "nip90", "keygen", "--out", filepath.Join(folder, keyFile)}, serve(file)}
		}},
		{"cluster", "several servers that share their state on NATS", func(file, _ string) []Command {
			return []Command{with(file, "tideover", "doctor"), serve(file)}
		}},
		{"all", "an example of every section", func(file, _ string) []Command {
			return []Command{with(file, "tideover", "config", "check"), serve(file)}
		}},
	}
}

// Find returns the case with this name.
func Find(name string) (c Case, ok bool) {
	for _, c := range Cases() {
		if c.Name == name {
			return c, true
		}
	}
	return c, false
}

// File returns the text of the configuration file.
func (c Case) File() ([]byte, error) { return templates.ReadFile("templates/" + c.Name + ".yaml") }

// Next returns the two commands to run after the configuration was written to file.
func (c Case) Next(file string) []Command { return c.next(file, filepath.Dir(file)) }

func serve(file string) Command { return with(file, "tideover", "serve") }

// with adds --config to a command, unless the file is one that tideover finds by itself.
func with(file string, command ...string) Command {
	if filepath.Clean(file) == Name {
		return command
	}
	return append(command, "--config", file)
}
