// Package web is the HTML rendering of a [control.Service]: an overview, the runs of an engine, one
// run with its history, the dead letters, the sessions, the policies with the waits that they led
// to, the notifications, the health of the server, and the providers of the gateway. Without an
// engine there are only providers and health.
//
// A [Site] renders templates, sends live updates and shows errors. Each page is a type that embeds
// the Site. Every page and every action works without JavaScript. With JavaScript, pages update
// themselves by an event stream (htmx and its SSE extension, embedded), count down, and ask for
// confirmation in a dialog. There is no build step, and nothing is loaded from other servers.
//
// Text that users and programs wrote is shown as text: html/template escapes it, and all output
// passes through one function that makes control and direction characters visible.
//
// The package does not check who may see or do something: [httpserver.Guard] must be in front of it.
package web
