// Package pages is the HTML rendering of a [control.Engine]: the runs, one run with its history, the
// dead letters, the workflows and the schedules. A server adds pages of its own.
//
// A [Site] renders templates, sends live updates and shows errors. Every page and every action works
// without JavaScript. With JavaScript, pages update themselves by an event stream (htmx and its SSE
// extension, embedded), count down, and ask for confirmation in a dialog. There is no build step, and
// nothing is loaded from other servers.
//
// Text that users and programs wrote is shown as text: html/template escapes it, and all output
// passes through one function that makes control and direction characters visible.
//
// The package does not check who may see something, nor where a request comes from: a handler in
// front of it does. It rejects the changes of a [Caller] who may only look.
package pages
