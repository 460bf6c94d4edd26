// Package simulate is the command around package sim: it reads scenarios from
// files, and shows a report to people, as a table and plots in a terminal, as a
// drawing, and as a page that needs nothing else.
//
// It computes nothing that is in the report already; what it says in words it has
// looked up there.
package simulate
