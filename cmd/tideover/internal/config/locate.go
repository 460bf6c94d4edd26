package config

import (
	"path/filepath"
	"slices"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// Locate returns the socket and the data folder of the server that runs with the
// configuration. Clients of the server use it. It checks no other keys, because they may
// refer to secrets that only the server can read.
func Locate(src Source) (socket, data string, err error) {
	f, err := openFile(src)
	if err != nil {
		return "", "", err
	}
	if f.doc.Problems() == 0 {
		f.server.locate(f.doc.Root, &f.cfg.Server)
	}
	return f.cfg.Server.Socket, f.cfg.Server.Data, f.doc.Err()
}

// locate reads the keys data and socket of the section server.
func (r serverReader) locate(root place, s *Server) {
	at := root.Child("server", strictyaml.NewMap())
	if n := root.Node.Get("server"); n != nil {
		at.Node = n
	}
	if !root.Empty() && !root.IsMap() {
		root.Bad("%v, where a map is expected", root.Node.Kind)
		return
	}
	if at = orMap(at); !at.IsMap() {
		at.Bad("%v, where a map is expected", at.Node.Kind)
		return
	}
	keys := r.serverKeys(s)
	at.Node = r.layers(at, keys)
	root.Document().ForgetProblems() // about variables and flags that match no key
	other := func(name string) bool { return name != "data" && name != "socket" }
	keys = slices.DeleteFunc(keys, func(k key) bool { return other(k.Name) })
	at.Node.Pairs = slices.DeleteFunc(at.Node.Pairs, func(p strictyaml.Pair) bool { return other(p.Key.Text) })
	found, _ := strictyaml.Object(at, keys)
	r.defaultPlaces(at, found, s)
}

// defaultPlaces sets the data folder and the socket to their defaults if they are not in
// found.
func (r serverReader) defaultPlaces(at place, found map[string]place, s *Server) {
	if _, ok := found["data"]; !ok {
		s.Data = r.defaultData(at)
	}
	if _, ok := found["socket"]; !ok {
		here := at.Child("socket", strictyaml.NewText("", "default"))
		s.Socket = checkSocket(here, filepath.Join(s.Data, "tideover.sock"))
	}
}
