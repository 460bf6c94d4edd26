// Package textfmt formats counts, durations, sizes, shortened texts and command lines
// for messages, and parses sizes and percentages.
//
// Functions for one kind of value differ in their output:
//
//	                   90 s     1.2345 s   36 h      for
//	PolicyDuration     1m30s    1.2345s    36h       policies: exact, ASCII, whole days as 2d
//	ASCIIDuration      1m30s    1.2345s    36h       exact, ASCII, no days
//	CompactDuration    1m30s    1.2345s    36h       exact, with µs, no days
//	ShortDuration      1m30s    1.235s     1d12h     tables and charts: about four digits
//	CoarseDuration     1m30s    1s         1d12h     lists: one or two units, rounded down
//	RoundedDuration    1m30s    1s         1d12h     messages: one or two units, rounded
//	ElapsedDuration    1m30s    1.2s       1d12h     messages: how long something took
//	MeasuredDuration   1m30s    1.23s      1d12h     latencies: about three digits
//	ReadableDuration   1m30s    1.2s       36h0m0s   progress lines: as Go writes it, rounded
//
// Truncate functions count bytes, Clip functions count characters. The functions with
// Within in their name count the mark for the omitted rest, the others add it.
package textfmt
