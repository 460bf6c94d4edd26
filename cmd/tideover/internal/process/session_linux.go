package process

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// KillSession kills every process of a session, except its leader. Use it after the leader was
// killed.
func KillSession(leader int) {
	session := []byte(strconv.Itoa(leader))
	names, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name.Name())
		if err != nil || pid == leader {
			continue
		}
		data, err := os.ReadFile("/proc/" + name.Name() + "/stat")
		if err != nil {
			continue
		}
		if fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:]); len(fields) > 3 && bytes.Equal(fields[3], session) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
