package page_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/page"
)

func ExampleNew() {
	dir, err := os.MkdirTemp("", "page")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	eng, err := engine.Open(context.Background(), engine.Config{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close(context.Background())

	mux := http.NewServeMux()
	mux.Handle("/tasks/", page.New(eng, page.Options{Path: "/tasks", User: func(r *http.Request) page.User {
		name, _, known := r.BasicAuth() // in front of it, a handler checks the password
		return page.User{Name: name, MayChange: known}
	}}))

	server := httptest.NewServer(mux) // or http.ListenAndServe("localhost:8080", mux)
	defer server.Close()
	resp, err := http.Get(server.URL + "/tasks/")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, resp.Request.URL.Path)
	// Output: 200 /tasks/runs
}
