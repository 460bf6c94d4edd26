// Package secret keeps secrets out of what is printed.
//
// A [String] holds one: whatever prints it, by whatever verb or encoder, gets
// "***"; only [String.Reveal] returns it. A [Ref] says where one is kept,
// ${env:NAME} or ${file:path}, and is what files and stored runs contain; a
// [Resolver] looks it up at the moment of use. A [Redactor] knows the values
// and takes them out of text that others wrote: the output of a command, the
// error of a library that quotes a URL.
//
// It is not a vault: the values stay in the memory of the process, and are
// given in the clear to whoever calls Reveal.
package secret
