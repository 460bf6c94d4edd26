// Package control has the operations on a tideover server: on runs, sessions, providers and
// messages, and on the server itself. The JSON API (package api) and the web pages (package web)
// are two renderings of a [Service]; both answer an error with the status of its [Code].
//
// The types with JSON tags are those of the API, whose client (package client) uses them too.
package control
