// Package notify sends messages about events to people: by ntfy, Slack, a webhook, email
// or a command.
//
// [Compose] makes a [Message] from an event. [Wants] reports whether a notifier sends it.
// A [Gate] holds back duplicates and messages above the rate limit. A [Sender] makes one
// attempt to send a message; package retry can classify its errors, and they contain no
// secrets.
//
// The package stores nothing and does not retry. For reliable delivery, the caller stores
// the message, calls [Sender.Send] under the notifier's policy, and passes the result of
// [SendError.Progress] to the next attempt; package outbox does that. A message may be
// sent twice then. The receiver can recognise it by its id, which is the same for the same
// event.
package notify
