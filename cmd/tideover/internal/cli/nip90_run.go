package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
	"github.com/tideover/tideover/nostr"
)

// run sends the request and prints its progress and result.
func (o *requestOptions) run(cmd *cobra.Command, ask *nip90client.Ask, key nostr.SecretKey, task string) error {
	report := newJobReporter(&o.remote)
	ephemeral := key.IsZero()
	if ephemeral {
		var err error
		if key, err = nostr.GenerateKey(); err != nil {
			return &codedError{err, codeOwn}
		}
	}
	var inbox *nip90client.Inbox // set before the client runs
	client, err := o.client(key, report.printNotice, func(e *nostr.Event) error { return inbox.Put(e) })
	if err != nil {
		return err
	}
	ask.Relays = client.Relays() // without credentials
	if ask.Task, err = readTask(task, o.io.In); err != nil {
		return err
	}
	request, err := ask.Event(key, time.Now())
	if err != nil {
		return err
	}
	inbox = nip90client.NewInbox(nip90client.Answers(request))
	if ephemeral && !o.json {
		report.printNotice("no --key: the request is signed with a new key that is not stored")
	}
	return report.trackRequest(cmd.Context(), client, request, &nip90client.Customer{
		Link: nip90client.Over(client), Inbox: inbox, Key: key, Wait: time.Duration(o.wait), Detach: o.detach,
	})
}

// trackRequest publishes the request and prints what happens, until its end or a signal.
func (p *jobReporter) trackRequest(parent context.Context, client *nostr.Client, request *nostr.Event, c *nip90client.Customer) error {
	c.Sent = func(list []nostr.Receipt) { p.printSent(request, list) }
	c.Show = p.printAnswer
	c.Taken = func() {
		p.printNotice("canceling request %s; interrupt again to end at once", request.ID[:shownID])
	}
	ctx, stop := contextUntilSignal(parent)
	defer stop()
	end := startClient(client)
	defer end()
	out, err := c.Ask(ctx, request)
	if err != nil {
		return &codedError{err, codeOwn}
	}
	return p.printEnd(request, &out, context.Cause(ctx))
}
