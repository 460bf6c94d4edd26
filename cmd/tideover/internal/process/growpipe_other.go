//go:build unix && !linux

package process

// queued asks how many bytes a pipe holds: FIONREAD, the same on all of these.
const queued = 0x4004667f

func growPipe(int) {}
