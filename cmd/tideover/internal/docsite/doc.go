// Package docsite renders the documentation of the repository as a site: pages in a fixed reading
// order with a table of contents, links between them, and a search.
//
// [Handler] serves the site below /docs, and [Write] writes it as files that work without a server.
// Pages are rendered at the first request. They contain no data of the server, so that no token is
// needed; every page and the search work without JavaScript, and nothing is loaded from other
// servers.
package docsite
