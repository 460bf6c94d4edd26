package process

import "golang.org/x/sys/unix"

// queued asks how many bytes a pipe holds.
const queued = unix.TIOCINQ

// growPipe gives the pipe room for fewer, larger reads. It may be refused.
func growPipe(fd int) { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, 1<<20) }
