// Package contend is the loop of writers that collide: propose, learn that you
// lost and to what, rebase, wait, try again. It is for any store that takes a
// write only on condition: compare-and-set, an expected sequence, a
// serialisable transaction, a ballot.
//
//	var writer = contend.Must("contention")
//
//	n, err := contend.Do(ctx, writer, func(ctx context.Context, try contend.Try) (int, error) {
//		doc, version := store.Get(key)                  // what won, if we lost
//		doc.Count++                                     // rebase
//		if !store.CompareAndSet(key, version, doc) {
//			return 0, contend.Lost(nil, nil)
//		}
//		return doc.Count, nil
//	})
//
// # What is tried again
//
// A conflict: [Lost], which may carry the winner to rebase on without reading
// again, or an error that [WithConflicts] recognises. For SQL that is
// [SQLConflict]; for a JetStream key-value bucket, whose error for a wrong last
// sequence has the code 10071,
//
//	contend.WithConflicts(func(err error) bool { return errors.Is(err, jetstream.ErrKeyExists) })
//
// Losing is neither a success nor a final error. It spends an attempt of the
// policy, and is waited for by it: [retry.Decide] says how long, as everywhere.
// The preset contention makes 7 attempts with 0.63 to 0.945 s of waits.
//
// An error with a mark of package retry follows the mark:
// [retry.After] and [retry.Throttled] are tried again, [retry.Permanent] is not.
// Every other error, also one whose type knows whether it may pass, ends the proposal at once. That is the opposite of package retry's rule,
// because here a failure that says nothing may have been a write.
//
// # Ambiguous answers
//
// An attempt whose answer was lost may have won. [Unsure] says so, and promises
// that the next attempt looks first; from then on [Try].Unsure is set. Look in
// the same state that the write depends on: a check before the read can miss a
// write that lands between the two, and then a change is made twice. [Update]
// is the loop in parts that gets this right. An attempt that is cut off by a
// timeout or a cancellation without saying anything ends the proposal.
//
// A proposal that ends while this is open has the error [ErrUnsure] besides its
// reason. So a success is reported once; as a plain failure only where the
// operation returned one that does not unwrap to ErrUnsure, which [Update] never does.
//
// # When it ends
//
// With the policy's attempts: [ErrRetries], "max proposal retries exceeded",
// which wraps the last conflict. With the total timeout, 30 seconds when the
// policy has none, for the whole proposal: [ErrTimeout]. A wait ends at once
// with the context.
//
// # Far away
//
// A fixed base fits one distance. At 10 ms, it spreads writers whose attempts
// take 4 ms, and hardly any whose attempts take 200 ms: they start over while
// the winner is still at it. [Config].Scale sets the base in attempts as they
// are measured, and [Config.For] has the rule and its bounds. With ten writers
// that start at once, five acceptors and 50 ms from one to the other, all ten
// got through in none of 100 groups with the fixed base, and in all 100 with
// Scale 1.5; at 1 ms there is no difference. The test of this package runs it.
//
// # What it is not for
//
// One writer that fails: that is package retry. Many writers that are always
// busy: optimism wastes their work, and a queue before the store does not.
package contend
