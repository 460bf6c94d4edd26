package cli

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// An exit code means the same in every command. A command that runs another command passes on its
// code, so that all errors of its own have [CodeOwn].
const (
	codeOfCommand     = -1 // stands for any code of the command that is run
	codeSuccess       = 0
	CodeFailed        = 1
	codeCanceled      = 2
	CodeUnknown       = 3
	codeNoAnswer      = 4
	codePartial       = 5
	codeUnreadable    = 6
	codeTimeout       = 124
	CodeOwn           = 125
	codeNotExecutable = 126
	codeNotFound      = 127
	codeSignal        = 128 // stands for 128+n, the codes of the signals
)

// exitLine is an exit code in the help of a command.
type exitLine struct {
	code         int
	label, means string
}

// exitMeanings has all exit codes, in the order of help texts, with what they mean in every command.
var exitMeanings = []exitLine{
	{codeSuccess, "0", "success"},
	{codeOfCommand, "N", "the exit code of the command that was run"},
	{CodeFailed, "1", "the work was done, and its result is a failure or a no"},
	{codeCanceled, "2", "the work was canceled"},
	{CodeUnknown, "3", "there is nothing of the name, or it matches several"},
	{codeNoAnswer, "4", "no answer arrived in time; the work may continue"},
	{codePartial, "5", "the result is only partial"},
	{codeUnreadable, "6", "no answer can arrive; the work may continue"},
	{codeTimeout, "124", "a time limit ended the work"},
	{CodeOwn, "125", "tideover's own error, such as a bad flag, an unreadable file, no server, or a request that the server rejected"},
	{codeNotExecutable, "126", "the command can't be executed"},
	{codeNotFound, "127", "the command was not found"},
	{codeSignal, "128+n", "ended by signal n"},
}

// exits has the exit codes of a command, with what they mean there. All commands also have 0, 125 and
// 128+n, which need an entry only if there is more to say.
type exits map[int]string

// exitKey begins the keys of the annotations of a command that hold its exit codes.
const exitKey = "tideover-exit-"

// declare adds the exit codes to a command, and returns it. The command can end with no other.
func (e exits) declare(cmd *cobra.Command) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	for code, means := range e {
		cmd.Annotations[exitKey+strconv.Itoa(code)] = means
	}
	return cmd
}

// exitLines returns the exit codes with which a command can end.
func exitLines(cmd *cobra.Command) (list []exitLine) {
	for _, m := range exitMeanings {
		means, declared := cmd.Annotations[exitKey+strconv.Itoa(m.code)]
		if declared || slices.Contains([]int{codeSuccess, CodeOwn, codeSignal}, m.code) {
			list = append(list, exitLine{m.code, m.label, cmp.Or(means, m.means)})
		}
	}
	return list
}

// exitCode returns the code with which a command ends: code if the command has declared it, else
// [CodeOwn].
func exitCode(cmd *cobra.Command, code int) int {
	for _, line := range exitLines(cmd) {
		if line.code == code || line.code == codeOfCommand || line.code == codeSignal && code > codeSignal {
			return code
		}
	}
	return CodeOwn
}

// listsExits reports whether the help of a command lists exit codes. A command that only prints its
// help needs no list.
func listsExits(cmd *cobra.Command) bool {
	if cmd.HasSubCommands() {
		return slices.ContainsFunc(slices.Collect(maps.Keys(cmd.Annotations)), func(key string) bool { return strings.HasPrefix(key, exitKey) })
	}
	return cmd.Runnable()
}
