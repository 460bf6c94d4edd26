// Command release does the parts of a release that shells do differently on each system: it
// collects the licences of everything that is linked into the binary, and packs reproducible
// archives. scripts/release.sh and make licenses run it; it is not part of the binary.
package main
