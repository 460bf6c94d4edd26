package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/engine/move"
)

// addWithout adds the flag --without-shard.
func addWithout(cmd *cobra.Command, shards *[]int) {
	cmd.Flags().IntSliceVar(shards, "without-shard", nil, "leave out the lost shard with this `number`; can be repeated")
}

// incomplete returns the warning about shards that were left out.
func incomplete(list []move.LeftOut) string {
	var numbers []string
	for _, l := range list {
		numbers = append(numbers, strconv.Itoa(l.Shard))
	}
	noun := "shard "
	if len(list) > 1 {
		noun = "shards "
	}
	return "NOT COMPLETE: " + noun + strings.Join(numbers, ", ") + " left out"
}

// renderLeftOut returns a line for each shard that was left out, so that a partial copy is not
// taken for a complete one.
func renderLeftOut(list []move.LeftOut, s *screen) (lines []string) {
	for _, l := range list {
		lines = append(lines, s.paint("31", visible(fmt.Sprintf("LEFT OUT shard %d, with all its runs, keys, schedules and history: %s", l.Shard, l.Error))))
	}
	return lines
}

// hintLostShard adds to the error about a lost shard how to leave it out.
func hintLostShard(err error) error {
	if lost, ok := errors.AsType[*move.LostShardError](err); ok {
		return fmt.Errorf("%w; if it can't be restored, leave it out with --without-shard %d", err, lost.Shard)
	}
	return err
}
