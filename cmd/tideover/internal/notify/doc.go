// Package notify tells people what happened: by ntfy, Slack, a webhook, mail or
// a command.
//
// [Compose] makes a [Message] of an event, [Wants] says whether a notifier tells
// of it, a [Gate] holds back what would be too much, and a [Sender] makes one
// attempt to send it. The sender's errors say what they mean for the next attempt
// in the words of package retry, and never have a secret in them.
//
// It keeps nothing and retries nothing: who needs a message to arrive runs
// [Sender.Send] under the notifier's policy, from an outbox that survives the
// process, and passes on what [SendError.Progress] returns. A message may then be
// sent twice; its id, which is the same for the same event, tells the receiver.
package notify
