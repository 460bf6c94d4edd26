package web

import "net/http"

// shortcut is a key and what it does.
type shortcut struct{ Keys, Does string }

// keysBody is how the page is used by keyboard.
type keysBody struct {
	Places []station
	Keys   []shortcut
	Dialog bool
}

// keys says which keys do what. static/app.js does it.
func (h *handler) keys(w http.ResponseWriter, r *http.Request) {
	b := keysBody{Places: h.stations(), Dialog: fromHTMX(r), Keys: []shortcut{
		{"?", "show this"},
		{"/", "search"},
		{"j", "go to the next entry of a list"},
		{"k", "go to the one before"},
		{"Enter", "open it"},
		{".", "go to the next page of a list"},
		{",", "go back to the first page of a list"},
		{"Esc", "close a dialog"},
	}}
	name := "keys"
	if b.Dialog {
		name = "keys-part"
	}
	h.show(w, r, http.StatusOK, name, page{Title: "Keyboard", Body: b})
}
