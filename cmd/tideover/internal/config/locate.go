package config

import (
	"path/filepath"
	"slices"
)

// Locate returns where the server that would run with the configuration has its
// socket and its data. It is for those who ask the server and have no use for the
// rest, which may be wrong, or refer to secrets that only the server has.
func Locate(src Source) (socket, data string, err error) {
	l, err := newLoader(src)
	if err != nil {
		return "", "", err
	}
	text, err := content(src)
	if err != nil {
		return "", "", err
	}
	l.lines = splitLines(text)
	root, err := parseYAML(text)
	if err != nil {
		l.problem(err)
		return "", "", l.result()
	}
	l.locate(root)
	return l.cfg.Server.Socket, l.cfg.Server.Data, l.result()
}

// locate reads of the section server what says where it is.
func (l *loader) locate(root *node) {
	section := &node{kind: mapKind}
	if root != nil && root.kind == mapKind {
		if n := root.get("server"); n != nil && n.kind != nullKind {
			section = n
		}
	} else if root != nil && root.kind != nullKind {
		l.bad(place{"", root}, "%v, where a map is expected", root.kind)
		return
	}
	at := place{"server", section}
	if section.kind != mapKind {
		l.bad(at, "%v, where a map is expected", section.kind)
		return
	}
	at.node = layers(l, at, serverKeys)
	l.problems = nil // of variables that are about something else
	var keys []key[Server]
	for _, k := range serverKeys {
		if k.name == "data" || k.name == "socket" {
			keys = append(keys, k)
		}
	}
	at.node.pairs = slices.DeleteFunc(at.node.pairs, func(p pair) bool { return p.key.text != "data" && p.key.text != "socket" })
	found, _ := object(l, at, keys, &l.cfg.Server)
	l.defaultPlaces(at, found, &l.cfg.Server)
}

// defaultPlaces fills in where the data and the socket are unless said.
func (l *loader) defaultPlaces(at place, found map[string]place, s *Server) {
	if _, ok := found["data"]; !ok {
		s.Data = l.defaultData(at)
	}
	if _, ok := found["socket"]; !ok {
		here := at.child("socket", given("", "default"))
		s.Socket = l.socket(here, filepath.Join(s.Data, "tideover.sock"))
	}
}
