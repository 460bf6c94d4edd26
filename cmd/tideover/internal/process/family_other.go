//go:build unix && !linux

package process

// family finds no descendants on this system, because orphans can't be inherited: only the group
// can be ended.
type family struct{}

type descendant struct {
	pid, group int
}

func newFamily() *family { return &family{} }

func (*family) environment() []string { return nil }

func (*family) children() []int { return nil }

func (*family) descendants() []descendant { return nil }
