package sqlitefile

import (
	"encoding/binary"
	"math"
)

// A table is a tree of pages. The leaves have the rows in the order of their numbers (rowid).
const (
	interior = 0x05
	leaf     = 0x0d
	maxDepth = 64 // a tree that is deeper is damaged
)

// Value is a column of a row: a number, or bytes.
type Value struct {
	Int   int64
	Bytes []byte
	Null  bool
}

// Table is what the schema says about a table or an index.
type Table struct {
	Root uint32 // number of the root page
	SQL  string // the statement that has created it; "" for an index that SQLite has made itself
}

// Tables returns all tables and indexes, by name.
func (f *File) Tables() (map[string]Table, error) {
	if f.tables != nil {
		return f.tables, nil
	}
	tables := map[string]Table{}
	err := f.rows(1, math.MinInt64, func(_ int64, columns []Value) error {
		if len(columns) < 5 {
			return damaged("the schema has too few columns")
		}
		tables[string(columns[1].Bytes)] = Table{uint32(columns[3].Int), string(columns[4].Bytes)}
		return nil
	})
	if err != nil {
		return nil, err
	}
	f.tables = tables
	return tables, nil
}

// page is a page of a tree.
type page struct {
	data  []byte
	head  int // offset of the header
	kind  byte
	cells int
}

func (f *File) tree(number uint32) (p page, err error) {
	if p.data, err = f.read(number); err != nil {
		return p, err
	}
	if number == 1 {
		p.head = headerSize
	}
	p.kind = p.data[p.head]
	p.cells = int(binary.BigEndian.Uint16(p.data[p.head+3:]))
	if p.kind != interior && p.kind != leaf || p.body()+2*p.cells > f.usable {
		return p, damaged("page %d is no part of a table", number)
	}
	return p, nil
}

// body returns the offset of the array of cells.
func (p *page) body() int {
	if p.kind == interior {
		return p.head + 12
	}
	return p.head + 8
}

// cell returns the bytes of the page from a cell on.
func (p *page) cell(i int) ([]byte, error) {
	at := int(binary.BigEndian.Uint16(p.data[p.body()+2*i:]))
	if at < p.body() || at+4 > len(p.data) {
		return nil, damaged("a row is outside of its page")
	}
	return p.data[at:], nil
}

// child returns a child of an interior page, and the largest row number in it.
func (p *page) child(i int) (number uint32, most int64, err error) {
	if i == p.cells {
		return binary.BigEndian.Uint32(p.data[p.head+8:]), math.MaxInt64, nil
	}
	c, err := p.cell(i)
	if err != nil {
		return 0, 0, err
	}
	key, n := varint(c[4:])
	if n == 0 {
		return 0, 0, damaged("a number ends outside of its page")
	}
	return binary.BigEndian.Uint32(c), int64(key), nil
}

// Ends returns the numbers of the first and the last row of a table. ok is false if it has none.
func (f *File) Ends(table string) (first, last int64, ok bool, err error) {
	tables, err := f.Tables()
	if err != nil {
		return 0, 0, false, err
	}
	if first, ok, err = f.end(tables[table].Root, false); err != nil || !ok {
		return 0, 0, false, err
	}
	last, ok, err = f.end(tables[table].Root, true)
	return first, last, ok, err
}

// end returns the number of the last row, or of the first one.
func (f *File) end(number uint32, last bool) (row int64, ok bool, err error) {
	for range maxDepth {
		p, err := f.tree(number)
		if err != nil {
			return 0, false, err
		}
		count, at := p.cells, 0
		if p.kind == interior {
			count++ // of children
		}
		if count == 0 {
			return 0, false, nil
		}
		if last {
			at = count - 1
		}
		if p.kind == interior {
			if number, _, err = p.child(at); err != nil {
				return 0, false, err
			}
			continue
		}
		c, err := p.cell(at)
		if err != nil {
			return 0, false, err
		}
		_, row, _, err := rowHeader(c)
		return row, err == nil, err
	}
	return 0, false, damaged("a table has too many levels")
}

// rowHeader returns the size and the number of a row, and the offset of its content.
func rowHeader(cell []byte) (size uint64, row int64, at int, err error) {
	size, n := varint(cell)
	key, m := varint(cell[n:])
	if n == 0 || m == 0 || size > math.MaxInt32 {
		return 0, 0, 0, damaged("a number ends outside of its page")
	}
	return size, int64(key), n + m, nil
}

// Rows calls yield with the rows of a table from a number on, in order. The values are valid until yield
// returns. Rows fails if the numbers do not increase. If the table does not exist, it has no rows.
func (f *File) Rows(table string, from int64, yield func(row int64, columns []Value) error) error {
	tables, err := f.Tables()
	if err != nil || tables[table].Root == 0 {
		return err
	}
	return f.rows(tables[table].Root, from, yield)
}

func (f *File) rows(root uint32, from int64, yield func(row int64, columns []Value) error) error {
	w := walk{file: f, from: from, before: math.MinInt64, yield: yield, left: f.total / f.size}
	return w.page(root, 0)
}

// walk reads the rows of a table.
type walk struct {
	file   *File
	from   int64
	before int64 // number of the last row
	begun  bool
	left   int // a table has no more pages than the files
	yield  func(row int64, columns []Value) error
}

func (w *walk) page(number uint32, depth int) error {
	if w.left--; depth > maxDepth || w.left < 0 {
		return damaged("a table has too many levels or pages")
	}
	p, err := w.file.tree(number)
	if err != nil {
		return err
	}
	p.data = append([]byte(nil), p.data...) // read uses the memory again
	for i := range p.cells {
		if p.kind == leaf {
			err = w.row(&p, i)
		} else {
			err = w.child(&p, i, depth)
		}
		if err != nil {
			return err
		}
	}
	if p.kind == interior {
		return w.child(&p, p.cells, depth)
	}
	return nil
}

func (w *walk) child(p *page, i, depth int) error {
	number, most, err := p.child(i)
	if err != nil || most < w.from {
		return err
	}
	return w.page(number, depth+1)
}

func (w *walk) row(p *page, i int) error {
	c, err := p.cell(i)
	if err != nil {
		return err
	}
	size, row, at, err := rowHeader(c)
	if err != nil || row < w.from {
		return err
	}
	if w.begun && row <= w.before {
		return damaged("row %d comes after row %d", row, w.before)
	}
	w.begun, w.before = true, row
	data, err := w.file.content(c[at:], int(size))
	if err != nil {
		return err
	}
	columns, err := decode(data)
	if err != nil {
		return err
	}
	return w.yield(row, columns)
}

// content returns the content of a row that begins in cell. The rest of a large row is in other pages.
func (f *File) content(cell []byte, size int) ([]byte, error) {
	if size > f.total {
		return nil, damaged("a row of %d bytes is larger than the file", size)
	}
	most := f.usable - 35
	if size <= most {
		if size > len(cell) {
			return nil, damaged("a row is outside of its page")
		}
		return cell[:size], nil
	}
	least := (f.usable-12)*32/255 - 23
	here := least + (size-least)%(f.usable-4)
	if here > most {
		here = least
	}
	if here+4 > len(cell) {
		return nil, damaged("a row is outside of its page")
	}
	data := append(make([]byte, 0, min(size, 1<<20)), cell[:here]...)
	next := binary.BigEndian.Uint32(cell[here:])
	for len(data) < size {
		p, err := f.read(next)
		if err != nil {
			return nil, err
		}
		data = append(data, p[4:4+min(f.usable-4, size-len(data))]...)
		next = binary.BigEndian.Uint32(p)
	}
	return data, nil
}

// decode returns the columns of a row.
func decode(data []byte) (columns []Value, err error) {
	short := damaged("a row is too short")
	head, at := varint(data)
	if at == 0 || head > uint64(len(data)) || head < uint64(at) {
		return nil, short
	}
	types, body := data[at:head], data[head:]
	for len(types) > 0 {
		kind, n := varint(types)
		if n == 0 {
			return nil, short
		}
		types = types[n:]
		size, number := width(kind)
		if size > uint64(len(body)) {
			return nil, short
		}
		v := Value{}
		switch {
		case kind == 0:
			v.Null = true
		case kind == 9:
			v.Int = 1
		case number:
			v.Int = integer(body[:size])
		default:
			v.Bytes = body[:size]
		}
		columns, body = append(columns, v), body[size:]
	}
	return columns, nil
}

// width returns how many bytes a value of the type has, and whether it is an integer.
func width(kind uint64) (size uint64, number bool) {
	switch {
	case kind <= 4:
		return kind, true
	case kind == 5:
		return 6, true
	case kind == 6:
		return 8, true
	case kind == 7:
		return 8, false // a floating-point number
	case kind <= 11:
		return 0, true
	default:
		return (kind - 12) / 2, false
	}
}

// integer decodes a signed number.
func integer(b []byte) (n int64) {
	if len(b) > 0 && b[0]&0x80 != 0 {
		n = -1
	}
	for _, c := range b {
		n = n<<8 | int64(c)
	}
	return n
}

// varint decodes a number of 1 to 9 bytes. n is 0 if data is too short.
func varint(data []byte) (v uint64, n int) {
	for i, c := range data[:min(len(data), 9)] {
		if i == 8 {
			return v<<8 | uint64(c), 9
		}
		v = v<<7 | uint64(c&0x7f)
		if c&0x80 == 0 {
			return v, i + 1
		}
	}
	return 0, 0
}
