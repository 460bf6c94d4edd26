// Package config reads the one file that configures `tideover serve`.
//
// [Load] reads it strictly: an unknown key, a key given twice, a reference to a
// variable that is not set, a template that asks for a step which may not have
// ended are errors, and all problems of a file are reported together, each with
// its line and column. A value comes from a flag, a variable such as
// TIDEOVER_SERVER_LISTEN, the file or the defaults, in this order; [Config.Values] says from which.
//
// Secrets stand in the file as references, ${env:NAME} and ${file:path}. Load
// checks that they lead somewhere; their values are looked up when a [Step] is
// rendered, and are nowhere in a Config, a stored step or an error.
//
// The tables of keys (rootKeys, stepKeys…) are the only place that knows which
// keys there are: the loader and [Schema] both read them.
package config
