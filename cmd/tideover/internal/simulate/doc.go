// Package simulate implements the sim command on top of package sim: it reads scenarios from
// files, and renders a report as a table with plots for a terminal, as an SVG chart, and as a
// self-contained HTML page.
//
// It computes no results itself: all numbers and statements come from the [sim.Report].
package simulate
