package memlog_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// Two members share a store. Each can call the shards that the other one owns.
func ExampleStore_Join() {
	ctx := context.Background()
	store := &memlog.Store{Shards: 8}
	red, blue := store.Join("red"), store.Join("blue")
	defer red.Close()
	defer blue.Close()

	shards, _ := red.Assigned()
	lease, err := red.Lease(ctx, shards[0])
	if err != nil {
		log.Fatal(err)
	}
	err = lease.(journal.Shared).Serve(func(request []byte, reply func([]byte)) {
		reply(fmt.Appendf(nil, "red has heard %q", request))
	})
	if err != nil {
		log.Fatal(err)
	}
	answer, err := blue.Call(ctx, shards[0], []byte("hello"))
	fmt.Printf("%d shards each; %s, %v\n", len(shards), answer, err)
	// Output: 4 shards each; red has heard "hello", <nil>
}
