// Package api is the JSON rendering of a [control.Service]: HTTP and JSON on a Unix socket that
// only its owner can open, and on a TCP listener with a token. The command line uses it through
// package client.
//
// [New] returns the handler of everything under [Prefix]. It parses requests and writes
// responses; package control decides what is possible.
package api
