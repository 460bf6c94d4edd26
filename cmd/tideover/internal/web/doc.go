// Package web is the HTML rendering of an [admin.Service]. It adds to the pages about runs, which
// package pages has, an overview, the sessions, the policies with the waits that they led to, the
// notifications, the cluster, the health of the server, and the providers of the gateway with their
// requests. Without an engine there are only providers, requests and health.
//
// The package does not check who may see or do something: [httpserver.Guard] must be in front of it.
package web
