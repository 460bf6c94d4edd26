package doctor

import "golang.org/x/sys/unix"

// magics maps the magic numbers of file systems that are not a local disk to their kinds and names.
var magics = map[int64]disk{
	unix.TMPFS_MAGIC:           {kind: inMemory, name: "tmpfs"},
	unix.RAMFS_MAGIC:           {kind: inMemory, name: "ramfs"},
	unix.NFS_SUPER_MAGIC:       {kind: ofNetwork, name: "nfs"},
	unix.SMB_SUPER_MAGIC:       {kind: ofNetwork, name: "smb"},
	unix.SMB2_SUPER_MAGIC:      {kind: ofNetwork, name: "smb2"},
	unix.CIFS_SUPER_MAGIC:      {kind: ofNetwork, name: "cifs"},
	unix.CEPH_SUPER_MAGIC:      {kind: ofNetwork, name: "ceph"},
	unix.AFS_SUPER_MAGIC:       {kind: ofNetwork, name: "afs"},
	unix.CODA_SUPER_MAGIC:      {kind: ofNetwork, name: "coda"},
	unix.OVERLAYFS_SUPER_MAGIC: {kind: ofContainer, name: "overlay"},
}

func diskOf(path string) (disk, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return disk{}, err
	}
	d := magics[int64(uint32(s.Type))]
	d.free = s.Bavail * uint64(s.Bsize)
	return d, nil
}

// clockUnset reports whether the kernel says that the system clock is not synchronised. It returns false
// if that is unknown.
func clockUnset() bool {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return false // unknown
	}
	return t.Status&unix.STA_UNSYNC != 0
}
