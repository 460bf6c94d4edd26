package config

import (
	"path/filepath"
	"slices"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// Locate returns where the server that would run with the configuration has its
// socket and its data. It is for those who ask the server and have no use for the
// rest, which may be wrong, or refer to secrets that only the server has.
func Locate(src Source) (socket, data string, err error) {
	text, err := content(src)
	if err != nil {
		return "", "", err
	}
	l, err := newLoader(src, text)
	if err != nil {
		return "", "", err
	}
	if l.doc.Problems() == 0 {
		l.locate()
	}
	return l.cfg.Server.Socket, l.cfg.Server.Data, l.doc.Err()
}

// locate reads of the section server what says where it is.
func (l *loader) locate() {
	root := l.doc.Root
	at := root.Child("server", strictyaml.NewMap())
	switch {
	case root.IsMap():
		if n := root.Node.Get("server"); n != nil && n.Kind != strictyaml.KindNull {
			at.Node = n
		}
	case !root.Empty():
		root.Bad("%v, where a map is expected", root.Node.Kind)
		return
	}
	if !at.IsMap() {
		at.Bad("%v, where a map is expected", at.Node.Kind)
		return
	}
	at.Node = layers(l, at, serverKeys)
	l.doc.ForgetProblems() // of variables that are about something else
	var keys []strictyaml.Key[*loader, Server]
	for _, k := range serverKeys {
		if k.Name == "data" || k.Name == "socket" {
			keys = append(keys, k)
		}
	}
	at.Node.Pairs = slices.DeleteFunc(at.Node.Pairs, func(p strictyaml.Pair) bool { return p.Key.Text != "data" && p.Key.Text != "socket" })
	found, _ := strictyaml.Object(l, at, keys, &l.cfg.Server)
	l.defaultPlaces(at, found, &l.cfg.Server)
}

// defaultPlaces fills in where the data and the socket are unless said.
func (l *loader) defaultPlaces(at strictyaml.Place, found map[string]strictyaml.Place, s *Server) {
	if _, ok := found["data"]; !ok {
		s.Data = l.defaultData(at)
	}
	if _, ok := found["socket"]; !ok {
		here := at.Child("socket", strictyaml.NewText("", "default"))
		s.Socket = l.socket(here, filepath.Join(s.Data, "tideover.sock"))
	}
}
