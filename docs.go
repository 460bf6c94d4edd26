package tideover

import "embed"

// Docs has the documentation: README.md, and the folder docs with its decisions, pictures and
// example files, under their paths in the repository. The command serves it at /docs. A program
// that does not use Docs does not contain it.
//
//go:embed README.md docs/*.md docs/adr/*.md
//go:embed docs/*.svg docs/*.png docs/*.yaml docs/*.json docs/*.service
var Docs embed.FS
