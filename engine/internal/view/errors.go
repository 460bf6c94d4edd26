package view

import (
	"context"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"
)

// The errors that a caller tells apart.
var (
	// ErrDamaged says that the file can't be read: close the view, delete the
	// file, and fill a new one.
	ErrDamaged = errors.New("the view is damaged")

	// ErrFull says that there is no room on the disk. Nothing was written; the
	// same call may succeed when there is room again, and reading goes on.
	ErrFull = errors.New("no room for the view")

	// ErrClosed says that the view was closed.
	ErrClosed = errors.New("the view is closed")

	// ErrCursor says that Filter.After is not from a page of the same filter.
	ErrCursor = errors.New("no such place in the list")
)

// wrap names the operation and sorts what SQLite reports into the errors above.
func wrap(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	switch code := sqlite.ErrCode(err); {
	case code.ToPrimary() == sqlite.ResultInterrupt && ctx.Err() != nil:
		err = context.Cause(ctx)
	case isDamage(code):
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	case code.ToPrimary() == sqlite.ResultFull, code == sqlite.ResultIOErrSHMSize:
		// The latter is the file of shared memory that could not grow.
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	return fmt.Errorf("view: %s: %w", op, err)
}

// isDamage reports whether a code is about the content of the file. A short read
// is of one that was cut off.
func isDamage(code sqlite.ResultCode) bool {
	p := code.ToPrimary()
	return p == sqlite.ResultCorrupt || p == sqlite.ResultNotADB || p == sqlite.ResultFormat || code == sqlite.ResultIOErrShortRead
}

// prepare prepares a statement of ours. These have no mistakes, so an error that
// blames the statement means that the schema is not the one we wrote.
func prepare(c *sqlite.Conn, query string) (*sqlite.Stmt, error) {
	s, err := c.Prepare(query)
	if err != nil && sqlite.ErrCode(err).ToPrimary() == sqlite.ResultError {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return s, err
}
