// Package chart has the code that several kinds of charts share: time scales, colours, and text
// layout.
package chart
