package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manual writes all manual pages into a folder, and returns their texts by file name.
func manual(t *testing.T) (dir string, pages map[string]string) {
	t.Helper()
	dir = t.TempDir()
	root := newRoot(Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	root.SetArgs([]string{"man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	pages = map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		pages[e.Name()] = string(text)
	}
	return dir, pages
}

func TestTheManualHasEveryVerbAndFlag(t *testing.T) {
	t.Parallel()
	_, pages := manual(t)
	for _, name := range []string{"tideover.1", "tideover-exec.1", "tideover-sessions-ls.1", "tideover-completion-bash.1", "tideover-policy.7"} {
		if pages[name] == "" {
			t.Errorf("no page %s", name)
		}
	}
	for _, name := range []string{"tideover-man.1", "tideover-help.1"} {
		if pages[name] != "" {
			t.Errorf("there is a page %s", name)
		}
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() || cmd.Name() == "help" {
			return
		}
		page := pages[manName(cmd)+".1"]
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(page, bold("--"+f.Name)) {
				t.Errorf("the page of %q does not have --%s", cmd.CommandPath(), f.Name)
			}
		})
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	root := newRoot(Streams{})
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		visit(cmd)
	}
}

// If groff is installed, it must format all pages without a warning.
func TestManReadsTheManual(t *testing.T) {
	t.Parallel()
	dir, pages := manual(t)
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Log("groff is not installed; the pages were only written")
		return
	}
	args := []string{"-man", "-Tutf8", "-ww", "-z"}
	for name := range pages {
		args = append(args, filepath.Join(dir, name))
	}
	if out, err := exec.CommandContext(t.Context(), groff, args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("groff: %v\n%s", err, out)
	}
}

func TestAManPage(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "tideover", Short: "Gets things through"}
	cmd := &cobra.Command{
		Use: "try [flags] WORD", Short: "Try a word",
		Long:    "Tries a word.\n.PP is no request, and 'quoted' is no request either.\n\nExit codes:\n  0    done\n  125  C:\\path",
		Example: "  # as in `sh`\n  tideover try --times 3 ~x^2",
		Run:     func(*cobra.Command, []string) {},
	}
	cmd.Flags().IntP("times", "n", 5, "try it that often")
	cmd.Flags().String("to", "", "`where` to write")
	cmd.Flags().Bool("secret", false, "not to be seen")
	_ = cmd.Flags().MarkHidden("secret")
	root.AddCommand(cmd)
	golden(t, "man.txt", manPage(cmd, "v1.2.3"))
	if err := writeManual(root, filepath.Join(t.TempDir(), "a", "b"), "v1"); err != nil {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeManual(root, file, "v1"); err == nil {
		t.Error("a manual in a file is no error")
	}
}

// unescape replaces the escapes that the function escape writes by the characters.
var unescape = strings.NewReplacer(`\e`, `\`, `\-`, `-`, `\(aq`, `'`, `\(dq`, `"`, `\(ga`, "`", `\(ha`, `^`, `\(ti`, `~`, `\&`, ``)

func FuzzEscapedTextIsNoRequest(f *testing.F) {
	for _, seed := range []string{".TH x", "'br", `\fB`, `a\&b`, "~^`\"-", "a\n.so /etc/passwd", "\u00e9"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := escape(text)
		if strings.HasPrefix(got, ".") || strings.HasPrefix(got, "'") || strings.ContainsAny(got, "\n\r") {
			t.Errorf("escape(%q) = %q can be a request", text, got)
		}
		for _, c := range text {
			if c > '~' || c < ' ' {
				return
			}
		}
		if back := unescape.Replace(got); back != text {
			t.Errorf("escape(%q) = %q, which reads as %q", text, got, back)
		}
	})
}

// A page with subcommands has its parts in the order of --help: the commands come before the options.
func TestTheOrderOfAManualPage(t *testing.T) {
	t.Parallel()
	_, pages := manual(t)
	last := -1
	for _, part := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "OPTIONS", "EXAMPLES", "SEE ALSO"} {
		at := strings.Index(pages["tideover-schedules.1"], ".SH "+part+"\n")
		if at <= last {
			t.Errorf("%s is missing, or not after the part before it", part)
		}
		last = at
	}
}
