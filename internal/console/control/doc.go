// Package control has the operations on the runs, workflows and schedules of an engine, with the
// errors that the JSON API of the server and the web pages show: an error has a [Code], and so an
// HTTP status, the field of the request that is wrong, and a hint.
//
// The types with JSON tags are those of the API.
package control
