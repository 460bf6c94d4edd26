//go:build !linux

package adopt

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// processes returns the running processes of assistants. Their folders are unknown here, so that a
// session is left alone as long as any process of its assistant runs.
func processes() (list []process, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ps", "-axww", "-o", "pid=,command=").Output()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		pid, err := strconv.Atoi(words[0])
		if err != nil {
			continue
		}
		if name := assistantOf(words[1:]); name != "" {
			list = append(list, process{pid: pid, assistant: name, args: words[1:]})
		}
	}
	return list, nil
}
