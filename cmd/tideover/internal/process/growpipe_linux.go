package process

import "golang.org/x/sys/unix"

// queued is the ioctl that returns how many bytes a pipe holds.
const queued = unix.TIOCINQ

// growPipe enlarges the pipe, for fewer and larger reads. The system may refuse.
func growPipe(fd int) { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, 1<<20) }
