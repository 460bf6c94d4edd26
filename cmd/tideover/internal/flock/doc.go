// Package flock takes locks on files that end with the process, however that ends.
package flock
