// Package web is the page of tideover serve: an overview, the runs of an engine, one
// run with everything that happened to it, the dead letters, the sessions, the
// policies with the waits that they really led to, the notifications, the health of
// the server, and the providers of the gateway. Without an engine there are only
// providers and health.
//
// It is HTML from the server. Every page and every action works without
// JavaScript; with it, pages follow what happens through a stream of events
// (htmx and its SSE extension, embedded), count down, and ask for confirmation
// in a dialog. There is no build step and nothing is loaded from elsewhere.
//
// Whatever a page shows that somebody else wrote is text: html/template escapes
// it, and all that leaves the package goes through one function that makes
// control and direction characters visible.
//
// It does not decide who may see or do what. Authentication, the check of the
// host and the protection against requests from other sites are the business of
// a handler around this one.
package web
