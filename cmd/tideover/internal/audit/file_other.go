//go:build !unix

package audit

// noFollow does not exist on this system; open checks that the path is not a link.
const noFollow = 0
