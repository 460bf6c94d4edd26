package doctor

// kind is what a folder may be on.
type kind int

const (
	onDisk kind = iota // as far as is known
	inMemory
	ofNetwork
	ofContainer
)

// disk is what a folder is on.
type disk struct {
	kind kind
	name string // of the file system
	free uint64 // bytes that we may use
}
