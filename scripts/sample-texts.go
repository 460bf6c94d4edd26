//go:build ignore

// Sample-texts draws texts of this repository at random, for a reader who judges
// whether each is clear at first reading:
//
//	go run scripts/sample-texts.go [-seed N]
//
// The same seed and the same tree give the same sample.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
)

type text struct{ place, text string }

func main() {
	seed := flag.Uint64("seed", 1, "the seed of the sample")
	flag.Parse()
	list, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		log.Fatal("git ls-files: ", err)
	}
	var comments, messages, paragraphs []text
	for _, file := range strings.Fields(string(list)) {
		switch {
		case strings.HasPrefix(file, "docs/adr/"), strings.Contains(file, "testdata/"):
		case strings.HasSuffix(file, ".md"):
			paragraphs = append(paragraphs, paragraphsOf(file)...)
		case strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go"):
			c, m := textsOf(file)
			comments, messages = append(comments, c...), append(messages, m...)
		}
	}
	random := rand.New(rand.NewPCG(*seed, 0))
	show(random, "Doc comments", comments, 30)
	show(random, "Error messages", messages, 20)
	show(random, "Paragraphs", paragraphs, 10)
}

func show(random *rand.Rand, title string, all []text, n int) {
	fmt.Printf("## %s: %d of %d\n\n", title, n, len(all))
	for i, k := range random.Perm(len(all))[:n] {
		fmt.Printf("%d. %s\n%s\n\n", i+1, all[k].place, all[k].text)
	}
}

// textsOf returns the doc comments of a Go file, each with the first line of what it
// describes, and the texts of its errors.
func textsOf(file string) (comments, messages []text) {
	source, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, source, parser.ParseComments)
	if err != nil {
		log.Fatal(err)
	}
	document := func(doc *ast.CommentGroup, n ast.Node) {
		if doc == nil {
			return
		}
		at := files.Position(n.Pos())
		line, _, _ := strings.Cut(string(source[at.Offset:]), "\n")
		comments = append(comments, text{at.String(), doc.Text() + "    " + line})
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			document(n.Doc, n)
		case *ast.GenDecl:
			document(n.Doc, n)
		case *ast.TypeSpec:
			document(n.Doc, n)
		case *ast.Field:
			document(n.Doc, n)
		case *ast.CallExpr:
			called := types.ExprString(n.Fun)
			if len(n.Args) > 0 && (called == "errors.New" || called == "fmt.Errorf") {
				if s, ok := n.Args[0].(*ast.BasicLit); ok && s.Kind == token.STRING && strings.Count(s.Value, " ") > 1 {
					message, _ := strconv.Unquote(s.Value)
					messages = append(messages, text{files.Position(n.Pos()).String(), message})
				}
			}
		}
		return true
	})
	return comments, messages
}

// paragraphsOf returns the paragraphs of a page that have at least two lines and are no
// heading, list, table or code.
func paragraphsOf(file string) (found []text) {
	page, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	code := false
	for block := range strings.SplitSeq(string(page), "\n\n") {
		inside := code
		if strings.Count(block, "```")%2 == 1 {
			code = !code
		}
		if !inside && !strings.Contains(block, "```") && strings.Contains(strings.TrimSpace(block), "\n") &&
			!strings.ContainsAny(strings.TrimSpace(block)[:1], "#|-*<>1") {
			found = append(found, text{path.Clean(file), block})
		}
	}
	return found
}
