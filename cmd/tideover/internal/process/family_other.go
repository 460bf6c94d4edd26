//go:build unix && !linux

package process

// family knows no descendants here: there is no way to be given the orphans,
// so the group is all that can be ended.
type family struct{}

type relative struct {
	pid, group int
}

func newFamily() *family { return &family{} }

func (*family) environment() []string { return nil }

func (*family) children() []int { return nil }

func (*family) descendants() []relative { return nil }
