package template

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"text/template/parse"

	"github.com/tideover/tideover/internal/hosts"
)

// ErrOtherHost is the error of a URL or a Host header whose templates lead to another host than
// the text of the file.
var ErrOtherHost = errors.New("the templates lead to another scheme, host or port than the file: " +
	"add the host to server.allow-hosts, or write the host and a / before the first template")

// errDots is the error of a path that leads out of the part that the file names.
var errDots = errors.New(`the path has "." or ".." as a part, which could lead to another path than the file says`)

// piece is a part of a rendered text: text of the file or a secret, or the value of a template.
type piece struct {
	text    string
	isValue bool
}

// pieces renders the text like [Text.Render], but keeps its parts apart.
func (t *Text) pieces(sc *Scope) (list []piece, err error) {
	if t.IsConstant() {
		return []piece{{text: t.lit}}, nil
	}
	tmpl, err := t.tmpl.Clone()
	if err != nil {
		return nil, err
	}
	size := 0
	add := func(p piece) error {
		if size += len(p.text); size > maxRendered {
			return errTooLong
		}
		list = append(list, p)
		return nil
	}
	funcs := t.funcs(sc)
	funcs["urlquery"] = fmt.Sprint // values are escaped anyway, and must not be escaped twice
	funcs[printCall] = func(written string, v any) (string, error) {
		ref, isRef := v.(secretText)
		if isRef {
			return "", add(piece{text: string(ref)})
		}
		value, err := printText(written, v)
		return "", errors.Join(err, add(piece{value, true}))
	}
	err = tmpl.Funcs(funcs).Execute(writerFunc(func(text []byte) error { return add(piece{text: string(text)}) }), sc.Root)
	if err != nil {
		return nil, plainError(err)
	}
	return list, nil
}

// writerFunc is an [io.Writer] that passes each text to a function.
type writerFunc func([]byte) error

var _ io.Writer = writerFunc(nil)

// Write implements [io.Writer].
func (f writerFunc) Write(p []byte) (int, error) { return len(p), f(p) }

// urlPart is a part of a URL. It determines how a value in it is escaped.
type urlPart uint8

const (
	inScheme    urlPart = iota // before ://
	inAuthority                // user, host and port
	inPath
	inQuery
	inFragment
)

// next returns the part at the end of a text that begins in part p.
func (p urlPart) next(text string) urlPart {
	if p == inScheme {
		_, rest, ok := strings.Cut(text, "://")
		if !ok {
			return inScheme
		}
		p, text = inAuthority, rest
	}
	for _, c := range text {
		switch {
		case c == '#':
			p = inFragment
		case c == '?' && p < inQuery:
			p = inQuery
		case c == '/' && p < inPath:
			p = inPath
		}
	}
	return p
}

// escape returns a value as it is written in the part. A value before the path stays as it is: it
// may be a whole URL.
func (p urlPart) escape(value string) string {
	switch p {
	case inPath, inFragment:
		return url.PathEscape(value)
	case inQuery:
		return url.QueryEscape(value)
	default:
		return value
	}
}

// RenderURL renders the text as a URL. Each value of a template is escaped for the place where it
// stands: as one segment of the path, or as a part of the query. The values can't change the scheme,
// the host or the port that the file has, unless the host is in allowed.
func (t *Text) RenderURL(sc *Scope, allowed hosts.Set) (string, error) {
	return t.renderURL(sc, inScheme, allowed)
}

// RenderPath is [Text.RenderURL] for a path with a query, without scheme and host.
func (t *Text) RenderPath(sc *Scope) (string, error) { return t.renderURL(sc, inPath, nil) }

func (t *Text) renderURL(sc *Scope, part urlPart, allowed hosts.Set) (string, error) {
	list, err := t.pieces(sc)
	if err != nil {
		return "", err
	}
	var full, empty strings.Builder // the URL, and the URL with all values empty
	values := false
	for i, p := range list {
		text := p.text
		switch {
		case !p.isValue:
			empty.WriteString(text)
			part = part.next(text)
		case part == inAuthority && beforeUserEnd(list[i+1:]):
			text, values = strings.ReplaceAll(url.QueryEscape(text), "+", "%20"), true
		default:
			text, values = part.escape(text), true
		}
		full.WriteString(text)
	}
	if !values {
		return full.String(), nil
	}
	return full.String(), checkTarget(full.String(), empty.String(), allowed)
}

// beforeUserEnd reports whether an @ follows in the text of the file before the path: then the place
// before the pieces is in the user or the password of the URL.
func beforeUserEnd(list []piece) bool {
	for _, p := range list {
		if p.isValue {
			continue
		}
		if i := strings.IndexAny(p.text, "@/?#"); i >= 0 {
			return p.text[i] == '@'
		}
	}
	return false
}

// checkTarget returns an error if a URL has another target than the URL with empty values, and its
// host is not allowed. It returns nil for a text that is not a URL, which the caller refuses.
func checkTarget(full, empty string, allowed hosts.Set) error {
	u, err := url.Parse(full)
	if err != nil {
		return nil
	}
	if HasDots(u.Path) {
		return errDots
	}
	named, err := url.Parse(empty)
	if err == nil && u.Scheme == named.Scheme && u.Opaque == named.Opaque && strings.EqualFold(hostOf(u), hostOf(named)) || allowed.Names(hostOf(u)) {
		return nil
	}
	return ErrOtherHost
}

// HasDots reports whether an unescaped path has "." or ".." as a part. Some servers treat a
// backslash like a slash.
func HasDots(path string) bool {
	for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}

// hostOf returns the host of a URL with its port, without the default port of the scheme.
func hostOf(u *url.URL) string {
	port := u.Port()
	if port == "" || u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		return u.Hostname()
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// RenderHost renders the text as a Host header for a request to the host of target. A template in it
// can't name another host, unless the host is in allowed.
func (t *Text) RenderHost(sc *Scope, target *url.URL, allowed hosts.Set) (string, error) {
	list, err := t.pieces(sc)
	if err != nil {
		return "", err
	}
	var host strings.Builder
	values := false
	for _, p := range list {
		host.WriteString(p.text)
		values = values || p.isValue
	}
	if values && !hosts.Same(host.String(), target.Host) && !allowed.Names(host.String()) {
		return "", ErrOtherHost
	}
	return host.String(), nil
}

// ChoosesHost reports whether a template of a URL stands before the path and the query, where its value
// may be a part of the host. A template in the user or the password does not count.
func (t *Text) ChoosesHost() bool {
	if t.IsConstant() || t.tmpl.Tree == nil {
		return false
	}
	s := urlScan{}
	s.walk(t.tmpl.Root)
	return s.chooses || s.pending
}

// urlScan is the state of a walk through the template of a URL.
type urlScan struct {
	part    urlPart
	pending bool // a template stands in the authority, and perhaps in its user
	chooses bool
}

func (s *urlScan) walk(n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, e := range n.Nodes {
			s.walk(e)
		}
	case *parse.TextNode:
		s.text(string(n.Text))
	case *parse.ActionNode:
		s.action(n)
	case *parse.IfNode:
		s.branch(&n.BranchNode)
	case *parse.WithNode:
		s.branch(&n.BranchNode)
	case *parse.RangeNode:
		s.branch(&n.BranchNode)
	}
}

// text continues with a text of the file.
func (s *urlScan) text(text string) {
	end := s.part.next(text)
	if end >= inAuthority {
		head, _, _ := strings.Cut(text, "/")
		s.pending = s.pending && !strings.Contains(head, "@")
	}
	if end >= inPath {
		s.chooses, s.pending = s.chooses || s.pending, false
	}
	s.part = end
}

// action continues with a template or a reference. A reference before the path is expected to be the
// beginning of a URL up to its host or further.
func (s *urlScan) action(n *parse.ActionNode) {
	name, _ := n.Pipe.Cmds[0].Args[0].(*parse.IdentifierNode)
	switch isRef := name != nil && name.Ident == refCall; {
	case len(n.Pipe.Decl) > 0 || s.part >= inPath:
	case isRef:
		s.part = inAuthority
	case s.part == inScheme:
		s.chooses = true
	default:
		s.pending = true
	}
}

// branch continues with both branches, and with the earlier of the two places where they end.
func (s *urlScan) branch(n *parse.BranchNode) {
	other := *s
	s.walk(n.List)
	other.walk(n.ElseList)
	s.part = min(s.part, other.part)
	s.pending, s.chooses = s.pending || other.pending, s.chooses || other.chooses
}
