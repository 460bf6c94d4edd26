package view

import (
	"context"
	"fmt"
	"slices"

	"zombiezen.com/go/sqlite"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/codec"
)

// read calls f with a connection in a read transaction: f sees one consistent state of the view.
// op is the name of the operation, for errors.
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
	// The transaction must be ended even if the context has ended.
	c.SetInterrupt(nil)
	if end := exec(c, "ROLLBACK"); err == nil {
		err = end
	}
	return wrap(ctx, op, err)
}

// Get returns a run with all its fields. ok is false if the view does not have it.
func (v *View) Get(ctx context.Context, id string) (r Run, ok bool, err error) {
	err = v.read(ctx, "get", func(c *sqlite.Conn) error {
		place, found, err := locate(c, id)
		if err != nil || !found {
			return err
		}
		r, ok, err = v.names.at(c, place)
		return err
	})
	return r, ok, err
}

// List returns a page of the runs that match a filter. Without a search it does not sort all
// matching runs: it merges ranges of an index that are in order already.
func (v *View) List(ctx context.Context, f Filter) (p Page, err error) {
	err = v.read(ctx, "list", func(c *sqlite.Conn) error {
		s, ok, err := v.names.resolve(f)
		if err != nil {
			return err
		}
		if s.search != "" {
			if p.SearchBehind, err = behind(c); err != nil {
				return err
			}
		}
		if !ok {
			return nil
		}
		keys, err := s.keys(c)
		if err != nil {
			return err
		}
		if len(keys) > s.limit {
			keys = keys[:s.limit]
			p.Next = s.cursor(keys[s.limit-1])
		}
		p.Distance = s.mode
		for _, k := range keys {
			p.Cursors = append(p.Cursors, s.cursor(k))
		}
		p.Runs, err = s.preview(c, keys)
		return err
	})
	return p, err
}

// Find returns the ids of up to most runs whose id begins with a text, or whose key is the text.
// It looks for the key in the latest 1000 indexed runs that have the words of the text, and in the
// latest runs that are not indexed yet.
func (v *View) Find(ctx context.Context, text string, most int) (ids []string, err error) {
	if text == "" || most <= 0 {
		return nil, nil
	}
	err = v.read(ctx, "find", func(c *sqlite.Conn) error {
		s := selection{names: &v.names, from: minPlace, to: maxPlace, anyState: true, order: Newest, limit: most}
		keys, err := s.withID(c, text)
		if err != nil {
			return err
		}
		keyed, err := s.withKey(c, text)
		if err != nil {
			return err
		}
		for _, k := range append(keys, keyed...) {
			stored, ok, err := storedID(c, k.place)
			if err != nil {
				return err
			}
			if id := idAt(k.place, stored); ok && len(ids) < most && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		return nil
	})
	return ids, err
}

// Groups returns groups of the runs that have an error and match a filter, the largest groups
// first. It ignores Search, Order, After and Limit of the filter. It reads only the index of
// errors, and one or two runs of each group, unless the filter has MinAttempts.
func (v *View) Groups(ctx context.Context, f Filter, most int) (groups []info.Group, err error) {
	if most <= 0 {
		return nil, nil
	}
	f.Search, f.After, f.Order = "", "", ""
	err = v.read(ctx, "group", func(c *sqlite.Conn) error {
		s, ok, err := v.names.resolve(f)
		if err == nil && ok {
			groups, err = s.groups(c, most)
		}
		return err
	})
	return groups, err
}

const columns = "place, id, workflow, state, attempts, body"

// scan decodes a row of a statement that selects columns. elsewhere is true if the payloads
// are in the table payloads.
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

// at returns the run at a place with all its fields. ok is false if there is none.
func (n *names) at(c *sqlite.Conn, place int64) (r Run, ok bool, err error) {
	err = each(c, "SELECT "+columns+" FROM runs WHERE place=?", func(s *sqlite.Stmt) (err error) {
		r, _, err = n.whole(c, s)
		ok = err == nil
		return err
	}, place)
	return r, ok, err
}

// whole is scan for a run with all its payloads.
func (n *names) whole(c *sqlite.Conn, s *sqlite.Stmt) (r Run, place int64, err error) {
	r, place, elsewhere, err := n.scan(s)
	if err == nil && elsewhere {
		err = payloads(c, place, &r)
	}
	return r, place, err
}

// payloads reads the payloads that did not fit into the row.
func payloads(c *sqlite.Conn, place int64, r *Run) error {
	whole := false
	err := each(c, "SELECT data FROM payloads WHERE place=?", func(s *sqlite.Stmt) error {
		whole = readBlobs(&codec.Reader{Data: columnBytes(s, 0)}, r) == nil
		return nil
	}, place)
	if err == nil && !whole {
		err = fmt.Errorf("%w: payloads of run %q", ErrDamaged, r.ID)
	}
	return err
}

// locate returns the place of a run: its home, or the place that the table aside has for it.
func locate(c *sqlite.Conn, id string) (place int64, ok bool, err error) {
	if u, is := parseULID(id); is {
		stored, ok, err := storedID(c, u.home())
		if err != nil || ok && idAt(u.home(), stored) == id {
			return u.home(), ok && err == nil, err
		}
	}
	err = each(c, "SELECT place FROM aside WHERE id=?", func(s *sqlite.Stmt) error {
		place, ok = s.ColumnInt64(0), true
		return nil
	}, []byte(id))
	return place, ok, err
}

// storedID returns the id of the run at a place as the row stores it; idAt decodes it.
func storedID(c *sqlite.Conn, place int64) (stored []byte, ok bool, err error) {
	err = each(c, "SELECT id FROM runs WHERE place=?", func(s *sqlite.Stmt) error {
		stored, ok = columnBytes(s, 0), true
		return nil
	}, place)
	return stored, ok, err
}
