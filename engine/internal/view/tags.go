package view

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

const (
	putTag     = "INSERT INTO tags VALUES(?, ?)"
	deleteTags = "DELETE FROM tags WHERE place=?"
)

// Tag returns a tag as Filter.Tags has it.
func Tag(name, value string) string { return name + "=" + value }

// tagKey returns the number by which the table tags knows a tag: the beginning of its SHA-256.
func tagKey(tag string) int64 {
	sum := sha256.Sum256([]byte(tag))
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// putTags writes the tags of a run to the table tags, if they have changed. It does nothing for a
// run that has never had tags.
func (w *writer) putTags(place int64, r *Run) error {
	if r.Tags == nil {
		return nil
	}
	keys := make([]int64, 0, len(r.Tags))
	for name, value := range r.Tags {
		keys = append(keys, tagKey(Tag(name, value)))
	}
	slices.Sort(keys)
	stored, err := queryPlaces(w.conn, "SELECT key FROM tags WHERE place=? ORDER BY key", place)
	if err != nil || slices.Equal(stored, keys) {
		return err
	}
	if err := exec(w.conn, deleteTags, place); err != nil {
		return err
	}
	for _, key := range keys {
		w.tagged = true
		if err := exec(w.conn, putTag, place, key); err != nil {
			return err
		}
	}
	return nil
}

// withTags returns the runs with all tags of the selection, in its order. It reads the runs of
// the first tag.
func (s *selection) withTags(c *sqlite.Conn) (keys []key, err error) {
	q := s.tagQuery()
	err = sqlitex.ExecuteTransient(c, q, &sqlitex.ExecOptions{ResultFunc: func(st *sqlite.Stmt) error {
		keys = append(keys, key{st.ColumnInt64(1), st.ColumnInt64(0)})
		return nil
	}})
	return keys, err
}

func (s *selection) tagQuery() string {
	q := fmt.Sprintf(`SELECT runs.place, ifnull(runs.next, 0) FROM tags INDEXED BY tags_key CROSS JOIN runs ON runs.place=tags.place
		WHERE tags.key=%d AND tags.place>=%d AND tags.place<%d`, s.tags[0], s.from, s.to)
	part := *s
	part.tags = s.tags[1:]
	q += part.conditions()
	if s.order != Soonest {
		return fmt.Sprintf("%s ORDER BY tags.%s LIMIT %d", q, orderBy[s.order], s.limit+1)
	}
	past := s.past()
	return fmt.Sprintf(`%s AND runs.next IS NOT NULL AND (runs.next, runs.place)>(%d, %d)
		ORDER BY runs.next, runs.place LIMIT %d`, q, past.next, past.place, s.limit+1)
}
