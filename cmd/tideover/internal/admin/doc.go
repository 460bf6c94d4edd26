// Package admin has the operations on a tideover server: on the runs of its engine, which package
// control has, on sessions, providers and messages, and on the server itself. The JSON API (package
// api) and the web pages (package web) are two renderings of a [Service].
//
// The types with JSON tags are those of the API, whose client (package client) uses them too.
package admin
