// Command release does what a release needs and no shell does alike everywhere: it
// collects the licences of whatever is linked into the binary, and packs archives
// that have the same bytes whoever packs them. It is run by scripts/release.sh and
// by make licenses, and is no part of the binary.
package main
