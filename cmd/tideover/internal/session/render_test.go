package session

import "testing"

func TestAFieldIsFoundOnEveryBranch(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"":                                  false,
		"Prompt":                            false,
		"{{.Name}}":                         false,
		"{{.Prompt}":                        false, // it can't be parsed
		`{{printf "%s" .Session}}`:          false,
		"{{.Prompt}}":                       true,
		"{{$.Prompt}}":                      true,
		"{{$}}":                             true,
		"{{.}}":                             true,
		"{{(.Prompt)}}":                     true,
		"{{$p := .Prompt}}{{$p}}":           true,
		`{{printf "%.3s" (print .Prompt)}}`: true,
		"{{if gt .Attempt 1}}:; {{end}}{{.Prompt}}":          true,
		"{{if gt .Attempt 1}}{{.Prompt}}{{end}}":             true,
		"{{if .Name}}x{{else}}{{.Prompt}}{{end}}":            true,
		"{{with .Prompt}}x{{end}}":                           true,
		"{{range $i, $c := .}}{{$c}}{{end}}":                 true,
		`{{define "a"}}{{.Prompt}}{{end}}{{template "a" .}}`: true,
	} {
		if got := mentions([]string{"sh", text}, "Prompt"); got != want {
			t.Errorf("mentions(%q) = %v", text, got)
		}
	}
}
