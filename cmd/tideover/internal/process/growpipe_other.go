//go:build unix && !linux

package process

// queued is the ioctl FIONREAD, which returns how many bytes a pipe holds; it is the same on all of
// these systems.
const queued = 0x4004667f

func growPipe(int) {}
