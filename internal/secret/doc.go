// Package secret keeps secrets out of printed, logged and stored text.
//
// A [String] holds one secret: every verb of fmt and every encoder writes "***";
// only [String.Reveal] returns the value. A [Ref] says where a secret is kept,
// ${env:NAME} or ${file:path}; files and stored runs contain references. A
// [Resolver] reads the secret when it is used. A [Redactor] knows the values and
// replaces them in text that other programs wrote: the output of a command, the
// error of a library that quotes a URL. [IsHeader], [IsQuery] and the other
// functions about names report whether a value is likely to be a secret.
//
// The package is not a vault: the values stay in the memory of the process.
package secret
