//go:build !unix

package audit

// noFollow is not there on this system; that the path is no link is checked
// before.
const noFollow = 0
