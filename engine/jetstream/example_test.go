package jetstream_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tideover/tideover/engine/jetstream"
)

func ExampleOpen() {
	ctx := context.Background()
	cluster, err := jetstream.Open(ctx, jetstream.Config{
		URL:         "nats://nats-1:4222,nats://nats-2:4222,nats://nats-3:4222",
		Credentials: "/etc/tideover/nats.creds",
		SecondPlace: "/mnt/backup/tideover",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	shards, _ := cluster.Assigned()
	fmt.Println(cluster.Member(), "should own", shards)
}

func ExampleLog_Check() {
	ctx := context.Background()
	cluster, err := jetstream.Open(ctx, jetstream.Config{
		URL:        "nats://nats-1:4222",
		SystemUser: "admin", SystemPassword: "from a secret store",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	found, err := cluster.Check(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range found {
		fmt.Printf("%s: %s: %s; %s\n", f.Severity, f.What, f.Why, f.Do)
	}
}
