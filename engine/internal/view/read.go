package view

import (
	"context"
	"fmt"

	"zombiezen.com/go/sqlite"
)

// read calls f with a connection that sees one state of the view throughout.
func (v *View) read(ctx context.Context, op string, f func(*sqlite.Conn) error) error {
	ctx, cancel := v.live(ctx)
	defer cancel()
	c, err := v.readers.get(ctx)
	if err != nil {
		return wrap(ctx, op, err)
	}
	defer v.readers.put(c)
	if err := exec(c, "BEGIN"); err != nil {
		return wrap(ctx, op, err)
	}
	err = f(c)
	// The context may have ended, and the transaction has to as well.
	c.SetInterrupt(nil)
	if end := exec(c, "ROLLBACK"); err == nil {
		err = end
	}
	return wrap(ctx, op, err)
}

// exec runs a statement that has neither parameters nor rows.
func exec(c *sqlite.Conn, query string) error {
	s, err := prepare(c, query)
	if err != nil {
		return err
	}
	_, err = s.Step()
	if reset := s.Reset(); err == nil {
		err = reset
	}
	return err
}

const columns = "place, id, workflow, state, attempts, body"

// scan reads a row of these columns, without what is kept elsewhere.
func (n *names) scan(s *sqlite.Stmt) (r Run, place int64, elsewhere bool, err error) {
	place = s.ColumnInt64(0)
	r.ID = idAt(place, columnBytes(s, 1))
	r.Workflow, r.State = n.name(s.ColumnInt64(2)), n.name(s.ColumnInt64(3))
	r.Attempts = s.ColumnInt(4) - firstName
	if elsewhere, err = decodeBody(place, columnBytes(s, 5), &r); err != nil {
		err = fmt.Errorf("%w: %w, run %q", ErrDamaged, err, r.ID)
	}
	return r, place, elsewhere, err
}

func columnBytes(s *sqlite.Stmt, col int) []byte {
	b := make([]byte, s.ColumnLen(col))
	s.ColumnBytes(col, b)
	return b
}

// Get returns everything about a run.
func (v *View) Get(ctx context.Context, id string) (r Run, ok bool, err error) {
	err = v.read(ctx, "get", func(c *sqlite.Conn) error {
		place, found, err := locate(c, id)
		if err != nil || !found {
			return err
		}
		if r, ok, err = v.names.at(c, place); err != nil || !ok {
			return err
		}
		return nil
	})
	return r, ok, err
}

// at returns the run at a place, whole.
func (n *names) at(c *sqlite.Conn, place int64) (r Run, ok bool, err error) {
	s, err := prepare(c, "SELECT "+columns+" FROM runs WHERE place=?")
	if err != nil {
		return r, false, err
	}
	defer s.Reset() //nolint:errcheck // it repeats the error of Step
	s.BindInt64(1, place)
	if ok, err = s.Step(); err != nil || !ok {
		return r, false, err
	}
	r, _, elsewhere, err := n.scan(s)
	if err == nil && elsewhere {
		err = payloads(c, place, &r)
	}
	return r, err == nil, err
}

// payloads reads what did not fit into the row.
func payloads(c *sqlite.Conn, place int64, r *Run) error {
	s, err := prepare(c, "SELECT data FROM payloads WHERE place=?")
	if err != nil {
		return err
	}
	defer s.Reset() //nolint:errcheck // it repeats the error of Step
	s.BindInt64(1, place)
	row, err := s.Step()
	if err != nil {
		return err
	}
	if !row || decodeBlobs(columnBytes(s, 0), r) != nil {
		return fmt.Errorf("%w: payloads of run %q", ErrDamaged, r.ID)
	}
	return nil
}

// locate finds the place of a run: where its id says, or where aside does.
func locate(c *sqlite.Conn, id string) (place int64, ok bool, err error) {
	if u, is := parseULID(id); is {
		stored, ok, err := storedID(c, u.home())
		if err != nil || ok && idAt(u.home(), stored) == id {
			return u.home(), ok && err == nil, err
		}
	}
	s, err := prepare(c, "SELECT place FROM aside WHERE id=?")
	if err != nil {
		return 0, false, err
	}
	defer s.Reset() //nolint:errcheck // it repeats the error of Step
	s.BindBytes(1, []byte(id))
	if ok, err = s.Step(); err != nil || !ok {
		return 0, false, err
	}
	return s.ColumnInt64(0), true, nil
}

// storedID returns what the row at a place keeps of its id.
func storedID(c *sqlite.Conn, place int64) (stored []byte, ok bool, err error) {
	s, err := prepare(c, "SELECT id FROM runs WHERE place=?")
	if err != nil {
		return nil, false, err
	}
	defer s.Reset() //nolint:errcheck // it repeats the error of Step
	s.BindInt64(1, place)
	if ok, err = s.Step(); err != nil || !ok {
		return nil, false, err
	}
	return columnBytes(s, 0), true, nil
}
