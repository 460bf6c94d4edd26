package nip90client_test

import (
	"fmt"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
)

// Data may have commas: only what follows the last one, and is a type, is the type.
func ExampleParseInput() {
	for _, text := range []string{"red, green", "https://example.com/a,url"} {
		in, err := nip90client.ParseInput(text)
		fmt.Printf("%q is %s, %v\n", in.Data, in.Type, err)
	}
	// Output:
	// "red, green" is text, <nil>
	// "https://example.com/a" is url, <nil>
}
