// Package examples has one runnable program for each way of using tideover, and
// the test that runs them.
package examples
