package nip90client_test

import (
	"fmt"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
)

// The data may have commas: the text after the last comma counts as the type only if it is
// a known type.
func ExampleParseInput() {
	for _, text := range []string{"red, green", "https://example.com/a,url"} {
		in, err := nip90client.ParseInput(text)
		fmt.Printf("%q is %s, %v\n", in.Data, in.Type, err)
	}
	// Output:
	// "red, green" is text, <nil>
	// "https://example.com/a" is url, <nil>
}
