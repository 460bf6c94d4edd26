// Package chart has what charts of several kinds share: time scales, colours, and text layout.
package chart
