package docsite

import (
	"bytes"
	"fmt"
	"html/template"
	"regexp"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// markdown has the extensions that the pages use. Tables are aligned by attributes, because the
// Content-Security-Policy forbids styles in attributes.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), extension.Footnote),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(blocks{}, 100))),
)

// parse parses the source of the page. It finds the title, the headings and the sections, and
// returns what the site does not support.
func (p *page) parse() (problems []error) {
	p.tree = markdown.Parser().Parse(text.NewReader(p.source))
	p.anchors = map[string]bool{}
	current := section{page: p}
	var content strings.Builder
	finish := func() {
		if current.text = strings.Join(strings.Fields(content.String()), " "); current.text != "" || current.heading != "" {
			current.lowerHeading, current.lowerText = strings.ToLower(current.heading), strings.ToLower(current.text)
			p.sections = append(p.sections, current)
		}
		content.Reset()
	}
	_ = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			if n.Type() == ast.TypeBlock {
				content.WriteByte(' ')
			}
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			title := plainText(n, p.source)
			anchor := p.newAnchor(title)
			n.SetAttributeString("id", []byte(anchor))
			switch n.Level {
			case 1:
				p.Title = title
			case 2:
				p.Headings = append(p.Headings, heading{title, anchor})
			}
			finish()
			current = section{page: p, heading: title, anchor: anchor}
			return ast.WalkSkipChildren, nil
		case *ast.HTMLBlock:
			if first := strings.TrimSpace(string(n.Lines().Value(p.source))); !strings.HasPrefix(first, "<!--") {
				problems = append(problems, fmt.Errorf("%s: HTML is not shown: %s", p.File, first))
			}
		case *ast.RawHTML:
			problems = append(problems, fmt.Errorf("%s: HTML is not shown: %s", p.File, n.Segments.Value(p.source)))
		default:
			writeText(&content, n, p.source)
		}
		return ast.WalkContinue, nil
	})
	finish()
	if p.Title == "" {
		problems = append(problems, fmt.Errorf("%s has no title", p.File))
	}
	return problems
}

// writeText writes the text of a node, without that of its children.
func writeText(b *strings.Builder, n ast.Node, source []byte) {
	switch n := n.(type) {
	case *ast.Text:
		value := n.Value(source)
		if _, isCode := n.Parent().(*ast.CodeSpan); !isCode {
			value = util.UnescapePunctuations(util.ResolveEntityNames(value))
		}
		b.Write(value)
		if n.SoftLineBreak() || n.HardLineBreak() {
			b.WriteByte(' ')
		}
	case *ast.String:
		b.Write(n.Value)
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		b.Write(n.Lines().Value(source))
	}
}

// plainText returns the text of a node and its children.
func plainText(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			writeText(&b, n, source)
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// newAnchor returns the anchor of a heading, which is the same as on GitHub. It is unique on the
// page.
func (p *page) newAnchor(title string) string {
	base := strings.ReplaceAll(strings.TrimSpace(notInAnchors.ReplaceAllString(strings.ToLower(title), "")), " ", "-")
	anchor := base
	for n := 1; p.anchors[anchor]; n++ {
		anchor = base + "-" + strconv.Itoa(n)
	}
	p.anchors[anchor] = true
	return anchor
}

// render replaces the destinations of the page's links, and writes its HTML.
func (s *site) render(p *page) error {
	err := ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		var dest *[]byte
		switch n := n.(type) {
		case *ast.Link:
			dest = &n.Destination
		case *ast.Image:
			dest = &n.Destination
		}
		if dest == nil || !entering {
			return ast.WalkContinue, nil
		}
		to, err := s.resolve(p, string(*dest))
		if err != nil {
			s.problems = append(s.problems, err)
		}
		*dest = []byte(to)
		return ast.WalkContinue, nil
	})
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, p.source, p.tree); err != nil {
		return err
	}
	p.Body = template.HTML(b.String()) //nolint:gosec // our own pages, and goldmark escapes HTML in them
	p.tree = nil
	return nil
}

// blocks renders the nodes that differ from goldmark's own rendering.
type blocks struct{}

// RegisterFuncs implements [renderer.NodeRenderer].
func (blocks) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindHeading, renderHeading)
	r.Register(ast.KindCodeBlock, renderCode)
	r.Register(ast.KindFencedCodeBlock, renderCode)
	r.Register(extast.KindTable, renderTable)
	r.Register(ast.KindHTMLBlock, renderNothing) // comments
	r.Register(ast.KindRawHTML, renderNothing)
}

// renderHeading adds a link to the heading itself.
func renderHeading(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	h := n.(*ast.Heading)
	id, _ := h.AttributeString("id")
	anchor := template.HTMLEscapeString(string(id.([]byte)))
	if entering {
		_, _ = fmt.Fprintf(w, `<h%d id="%s">`, h.Level, anchor)
		return ast.WalkContinue, nil
	}
	if h.Level > 1 {
		_, _ = fmt.Fprintf(w, ` <a class="anchor" href="#%s" aria-label="Link to: %s">#</a>`, anchor, template.HTMLEscapeString(plainText(h, source)))
	}
	_, _ = fmt.Fprintf(w, "</h%d>\n", h.Level)
	return ast.WalkContinue, nil
}

// renderCode puts a code block into a box that scrolls, with a button that copies it.
func renderCode(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	language := ""
	if f, ok := n.(*ast.FencedCodeBlock); ok {
		if name := f.Language(source); len(name) > 0 {
			language = fmt.Sprintf(` class="language-%s"`, template.HTMLEscapeString(string(name)))
		}
	}
	_, _ = fmt.Fprintf(w, `<div class="code"><button type="button" class="copy" aria-label="copy this text">copy</button><pre tabindex="0"><code%s>%s</code></pre></div>`+"\n",
		language, template.HTMLEscapeString(string(n.Lines().Value(source))))
	return ast.WalkSkipChildren, nil
}

// renderTable puts a table into a box that scrolls.
func renderTable(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString(`<div class="table" tabindex="0"><table>` + "\n")
	} else {
		_, _ = w.WriteString("</table></div>\n")
	}
	return ast.WalkContinue, nil
}

func renderNothing(util.BufWriter, []byte, ast.Node, bool) (ast.WalkStatus, error) {
	return ast.WalkSkipChildren, nil
}
