//go:build unix

package audit

import "golang.org/x/sys/unix"

// noFollow makes opening a symbolic link fail. An attacker who could place one there would choose
// the file that is made private and appended to.
const noFollow = unix.O_NOFOLLOW
