package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/engine/move"
)

// addWithout adds the flag that names shards that are lost.
func addWithout(cmd *cobra.Command, shards *[]int) {
	cmd.Flags().IntSliceVar(shards, "without-shard", nil, "leave out the shard with the `number`, which is lost; may be given again")
}

// incomplete warns of shards that were left out, whoever reads the rest.
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

// renderLeftOut says what is missing, so that nobody takes a part for all.
func renderLeftOut(list []move.LeftOut, s *screen) (lines []string) {
	for _, l := range list {
		lines = append(lines, s.paint("31", visible(fmt.Sprintf("LEFT OUT shard %d, with all its runs, keys, schedules and history: %s", l.Shard, l.Error))))
	}
	return lines
}

// advised adds to the error of a move what can be done about a shard that is lost.
func advised(err error) error {
	if lost, ok := errors.AsType[*move.LostShardError](err); ok {
		return fmt.Errorf("%w; if it can't be restored, leave it out: --without-shard %d", err, lost.Shard)
	}
	return err
}
