// Package describe makes the values of package info from runs of the state machine, and from rows of the view.
package describe
