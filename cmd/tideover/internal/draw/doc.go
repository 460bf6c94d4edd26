// Package draw has the parts that drawings of several kinds share: scales of time,
// colours, and text that fits.
package draw
