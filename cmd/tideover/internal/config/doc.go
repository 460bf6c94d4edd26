// Package config reads the one file that configures `tideover serve`.
//
// [Load] reads it strictly: an unknown key, a key that is given twice, a reference to a
// variable that is not set, or a template that uses a step that may not have ended is an
// error. All problems of a file are reported together, each with its line and column. A
// value comes from a flag, a variable such as TIDEOVER_SERVER_LISTEN, the file or the
// defaults, in this order; [Config.Values] has the origin of each.
//
// Secrets are references in the file, ${env:NAME} and ${file:path}. Load checks that they
// can be resolved; a [Config] does not hold their values.
//
// Each section has a file with its table of keys, such as serverKeys, and its reader.
// The tables are the only place that knows the keys: readers and [Schema] both use them.
// Checks across sections are in crosscheck.go. The packages steps, notify, nip90, tracing
// and cluster define the types of their own settings.
package config
