package adopt

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
)

const (
	maxTail   = 1 << 20 // bytes at the end of a record that are read
	maxHead   = 1 << 20 // bytes of its first line
	readAgain = 3       // how often a record that changes meanwhile is read
	batch     = 256     // entries of a folder that are read at once
)

var (
	errChanges = errors.New("it changes while it is read")
	errCut     = errors.New("its last line is incomplete")
)

// newest collects records, and keeps the newest ones.
type newest struct {
	list  []record // a heap: the oldest first
	since time.Time
	more  int // number of records that it has dropped
}

func (n *newest) Len() int           { return len(n.list) }
func (n *newest) Less(i, j int) bool { return n.list[i].changed.Before(n.list[j].changed) }
func (n *newest) Swap(i, j int)      { n.list[i], n.list[j] = n.list[j], n.list[i] }
func (n *newest) Push(x any)         { n.list = append(n.list, x.(record)) } //nolint:forcetypeassert // add pushes nothing else

// Pop implements [heap.Interface].
func (n *newest) Pop() any {
	last := n.list[len(n.list)-1]
	n.list = n.list[:len(n.list)-1]
	return last
}

func (n *newest) add(r record) {
	if r.changed.Before(n.since) {
		return
	}
	heap.Push(n, r)
	if len(n.list) > maxRecords {
		heap.Pop(n)
		n.more++
	}
}

// sorted returns the records, the newest first.
func (n *newest) sorted() []record {
	slices.SortFunc(n.list, func(a, b record) int { return cmp.Or(b.changed.Compare(a.changed), cmp.Compare(a.path, b.path)) })
	return n.list
}

// findFiles returns the newest files that are depth folders below a folder. id returns the id of the
// session in a file, by the name of the file; "" if the file is no record. Links are not followed.
func findFiles(folder string, depth int, since time.Time, id func(name string) string) ([]record, int, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, 0, err
	}
	defer root.Close()
	n := &newest{since: since}
	err = n.walk(root, ".", depth, id)
	return n.sorted(), n.more, err
}

// walk adds the files below dir. A folder that can't be read is reported after all others are read.
func (n *newest) walk(root *os.Root, dir string, depth int, id func(name string) string) (failed error) {
	f, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		list, err := f.ReadDir(batch)
		for _, e := range list {
			name := path.Join(dir, e.Name())
			switch {
			case e.IsDir() && depth > 0:
				failed = cmp.Or(failed, n.walk(root, name, depth-1, id))
			case depth == 0 && e.Type().IsRegular() && id(e.Name()) != "":
				if info, err := root.Lstat(name); err == nil && info.Mode().IsRegular() {
					n.add(record{name, id(e.Name()), info.ModTime()})
				}
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				failed = cmp.Or(failed, err)
			}
			return failed
		}
	}
}

// text is the part of a record that was read.
type text struct {
	first []byte   // the first line
	lines [][]byte // the last lines
}

// readText reads the first and the last lines of a record, all at the same state of the file.
func readText(folder string, r record) (t text, err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return t, err
	}
	defer root.Close()
	info, err := root.Lstat(r.path)
	switch {
	case err != nil:
		return t, err
	case !info.Mode().IsRegular():
		return t, errors.New("it is not a regular file")
	}
	if err := fileaccess.Check(path.Join(folder, r.path), info, fileaccess.Others); err != nil {
		return t, err
	}
	for range readAgain {
		var before, after fs.FileInfo
		if t, before, err = readOnce(root, r.path); err != nil && !errors.Is(err, errCut) {
			return t, err
		}
		if after, _ = root.Lstat(r.path); unchanged(before, after) {
			return t, err
		}
	}
	return t, errChanges
}

func unchanged(a, b fs.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func readOnce(root *os.Root, name string) (t text, info fs.FileInfo, err error) {
	f, err := root.Open(name)
	if err != nil {
		return t, nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return t, nil, err
	}
	t.first, err = bufio.NewReaderSize(io.LimitReader(f, maxHead), 64<<10).ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return t, info, err
	}
	begin := max(0, info.Size()-maxTail)
	last, err := io.ReadAll(io.NewSectionReader(f, begin, info.Size()-begin))
	if err != nil {
		return t, info, err
	}
	if begin > 0 { // it begins within a line
		_, last, _ = bytes.Cut(last, []byte("\n"))
	}
	if len(last) > 0 && last[len(last)-1] != '\n' {
		return t, info, errCut
	}
	for line := range bytes.SplitSeq(last, []byte("\n")) {
		if len(line) > 0 {
			t.lines = append(t.lines, line)
		}
	}
	return t, info, nil
}
