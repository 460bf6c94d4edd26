package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/server"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
)

const gatewayLong = `Runs a reliability proxy in front of HTTP and LLM APIs, for clients in any language.
Point the base URL of a client at http://127.0.0.1:7878/p/PROVIDER/ and change nothing
else.

The gateway retries by the provider's policy, rotates keys,
honours Retry-After, stops sending to a provider that is down, and fails over to
another provider if the configuration names one.

With names of presets (openai, anthropic, gemini) it needs no configuration. The keys
are then read from OPENAI_API_KEY, ANTHROPIC_API_KEY and GEMINI_API_KEY; if one is
unset or empty, clients send their own key. Without presets, the section "providers"
of the configuration defines the providers; see docs/gateway.md.

At the start it prints the URL of each provider, the source of its key, and the
address of the web page. On a terminal that address contains the token, otherwise the
name of the file with the token. Log lines go to standard error.

With server.tls in the file, or --tls-cert and --tls-key, it uses TLS, and its URLs
begin with https.

The token, the socket and learned recovery times are in a folder (--data). Only one
gateway or serve at a time can use a folder.

"tideover serve" includes the same gateway. "tideover providers" shows the state of
the providers, and /metrics has metrics for Prometheus.

SIGTERM or SIGINT lets requests finish, for 30 s at most; a second signal ends it at
once. SIGHUP, and any change of the file, reloads the configuration without losing
a request.`

const gatewayExample = `  # two APIs, with keys from the environment
  tideover gateway openai anthropic

  # any client: only its base URL changes
  OPENAI_BASE_URL=http://127.0.0.1:7878/p/openai/v1 python ask.py

  # providers from a configuration file
  tideover gateway --config tideover.yaml

  # in another terminal
  tideover providers --watch`

// gatewayKeys has the environment variable with the key of each preset that works without a
// configuration.
var gatewayKeys = map[string]string{
	gateway.OpenAI: "OPENAI_API_KEY", gateway.Anthropic: "ANTHROPIC_API_KEY", gateway.Gemini: "GEMINI_API_KEY",
}

// keyedPresets returns the names of the presets in gatewayKeys.
func keyedPresets() []string {
	return slices.DeleteFunc(slices.Clone(gateway.Presets), func(name string) bool { return gatewayKeys[name] == "" })
}

func newGateway(io Streams) *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:     "gateway [flags] [preset…]",
		Short:   "Run a reliability proxy in front of HTTP and LLM APIs",
		Long:    gatewayLong,
		Example: gatewayExample,
		RunE:    func(cmd *cobra.Command, args []string) error { return runGateway(cmd.Context(), io, o, args) },

		ValidArgsFunction: cobra.FixedCompletions(keyedPresets(), cobra.ShellCompDirectiveNoFileComp),
	}
	o.source.add(cmd)
	cmd.Flags().Lookup("listen").Usage = "`address` of the gateway (default 127.0.0.1:7878)"
	o.logs(cmd)
	return exitsServer.declare(cmd)
}

func runGateway(ctx context.Context, io Streams, o *serveOptions, presets []string) error {
	redactor := new(secret.Redactor)
	log, err := newLogger(io, o, redactor)
	if err != nil {
		return err
	}
	src, err := gatewaySource(o, presets, redactor)
	if err != nil {
		return err
	}
	return runServer(ctx, io, "gateway", server.Options{
		Source: src, Gateway: true, Log: log, Ready: func(p server.Page) { printGatewayAddresses(io, presets, p) },
	})
}

// gatewaySource returns the source of the configuration: the file, or a generated text if presets
// are given. The flag --listen sets the address of the gateway.
func gatewaySource(o *serveOptions, presets []string, redactor *secret.Redactor) (config.Source, error) {
	if len(presets) > 0 && o.source.path != "" {
		return config.Source{}, errors.New("gateway: presets and --config can't be used together: write the presets under providers: in the file")
	}
	src, err := o.source.source(redactor)
	if err != nil {
		return src, err
	}
	if listen, ok := src.Flags["listen"]; ok {
		delete(src.Flags, "listen")
		src.Flags["gateway.listen"] = listen
	}
	if len(presets) > 0 {
		src.Path = ""
		src.Data, err = presetConfig(presets)
		return src, err
	}
	if src.Path == "" {
		return src, fmt.Errorf("gateway: no configuration found: name a file with --config, or name presets: %s", strings.Join(keyedPresets(), ", "))
	}
	return src, nil
}

// presetConfig generates a configuration for the presets.
func presetConfig(presets []string) ([]byte, error) {
	var text strings.Builder
	text.WriteString("version: 1\nproviders:\n")
	for i, name := range presets {
		variable, ok := gatewayKeys[name]
		switch {
		case !ok:
			return nil, fmt.Errorf("gateway: %q is not a preset that works without a configuration: want one of %s%s", name, strings.Join(keyedPresets(), ", "),
				optional("; did you mean ", textfmt.Nearest(name, keyedPresets()), "?"))
		case slices.Contains(presets[:i], name):
			return nil, fmt.Errorf("gateway: preset %q is given twice", name)
		}
		fmt.Fprintf(&text, "  %s:\n    preset: %s\n", name, name)
		key := os.Getenv(variable)
		if err := config.Sendable(key); err != nil {
			return nil, fmt.Errorf("gateway: the value of %s %w", variable, err)
		}
		if key != "" {
			fmt.Fprintf(&text, "    auth: ${env:%s}\n", variable)
		}
	}
	return []byte(text.String()), nil
}

// printGatewayAddresses prints the URL of each provider and the source of its key, and the address
// of the web page. The address contains the token only on a terminal.
func printGatewayAddresses(io Streams, presets []string, p server.Page) {
	for _, one := range p.Providers {
		fmt.Fprintf(io.Out, "tideover: %s is at %sp/%s/ (%s)\n", one.Name, p.Address, one.Name, keySource(one, presets))
	}
	printPageAddress(io, p, false)
}

// keySource says where the key of a provider comes from.
func keySource(p server.Provider, presets []string) string {
	var from []string
	for _, ref := range p.Keys {
		_, name, _ := strings.Cut(strings.TrimSuffix(ref, "}"), ":") // NAME of ${env:NAME}, path of ${file:path}
		from = append(from, name)
	}
	switch {
	case p.Keyless:
		return "no credentials are sent"
	case len(from) > 1:
		return "keys from " + strings.Join(from, ", ")
	case len(from) == 1:
		return "key from " + from[0]
	}
	text := "clients send their own key"
	if variable := gatewayKeys[p.Name]; slices.Contains(presets, p.Name) {
		if _, set := os.LookupEnv(variable); set {
			text += "; " + variable + " is empty"
		}
	}
	return text
}
