package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
	"github.com/tideover/tideover/nostr"
)

// run asks, and tells how it goes.
func (o *requestOptions) run(cmd *cobra.Command, ask *nip90client.Ask, key nostr.SecretKey, task string) error {
	report := newJobReporter(&o.remote)
	ephemeral := key.IsZero()
	if ephemeral {
		var err error
		if key, err = nostr.GenerateKey(); err != nil {
			return &codedError{err, codeOwn}
		}
	}
	var inbox *nip90client.Inbox // the client does not run before it is there
	client, err := o.client(key, report.line, func(e *nostr.Event) error { return inbox.Put(e) })
	if err != nil {
		return err
	}
	ask.Relays = client.Relays() // without what may be secret
	if ask.Task, err = readTask(task, o.io.In); err != nil {
		return err
	}
	request, err := ask.Event(key, time.Now())
	if err != nil {
		return err
	}
	inbox = nip90client.NewInbox(nip90client.Answers(request))
	if ephemeral && !o.json {
		report.line("no --key: the request is signed with a key made for it alone")
	}
	return report.follow(cmd.Context(), client, request, &nip90client.Customer{
		Link: nip90client.Over(client), Inbox: inbox, Key: key, Wait: time.Duration(o.wait), Detach: o.detach,
	})
}

// follow has the customer ask, until the end or a signal.
func (p *jobReporter) follow(parent context.Context, client *nostr.Client, request *nostr.Event, c *nip90client.Customer) error {
	c.Sent = func(list []nostr.Receipt) { p.sent(request, list) }
	c.Show = p.answer
	c.Taken = func() {
		p.line("taking request %s back; a second interrupt does not wait", request.ID[:shownID])
	}
	ctx, stop := untilTold(parent)
	defer stop()
	end := running(client)
	defer end()
	out, err := c.Ask(ctx, request)
	if err != nil {
		return &codedError{err, codeOwn}
	}
	return p.end(request, &out, context.Cause(ctx))
}
