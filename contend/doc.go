// Package contend is the retry loop for writers that conflict: propose, learn
// that another writer won, rebase, wait, try again. It works with any store
// that accepts conditional writes: compare-and-set, an expected sequence, a
// serialisable transaction, a ballot.
//
//	var writer = contend.Must(contend.Config{}) // shared by all goroutines of the process
//
//	n, err := contend.Do(ctx, writer, func(ctx context.Context, try contend.Try) (int, error) {
//		doc, version := store.Get(key)                  // the present value
//		doc.Count++                                     // rebase
//		if !store.CompareAndSet(key, version, doc) {
//			return 0, contend.Lost(nil, nil)
//		}
//		return doc.Count, nil
//	})
//
// # What is retried
//
// A conflict: [Lost], which may carry the winning value so that it need not be
// read again, or an error that [WithConflicts] recognises. For SQL use
// [SQLConflict]; for a JetStream key-value bucket, whose error for a wrong last
// sequence has the code 10071, use
//
//	contend.WithConflicts(func(err error) bool { return errors.Is(err, jetstream.ErrKeyExists) })
//
// A conflict uses one attempt of the policy, and the policy decides the wait
// after it ([retry.Decide]). The default makes attempts for 30 seconds. The
// preset contention makes 7 attempts with 0.63 to 0.945 s of waits.
//
// # Turns
//
// Proposals of one Writer that have lost make their attempts one at a time: they
// would only conflict with each other. So share one Writer among all goroutines
// that write to a store. A Writer may be used for many values: a proposal for a
// value without conflicts does not wait for others, and none waits for more than
// 200 attempts. A policy with an attempt timeout takes no turns.
//
// An error with a mark of package retry follows the mark: [retry.After] and
// [retry.Throttled] are retried, [retry.Permanent] is not. Every other error
// ends the proposal at once, even one whose type says that it is temporary.
// Package retry does the opposite; here an unmarked failure may have been a
// write.
//
// # Ambiguous failures
//
// An attempt whose response was lost may have succeeded. Return [Unsure] for
// it; from then on [Try].Unsure is set, and the next attempt must first check
// whether the value was written. Make that check in the same state that the
// write depends on: a check before the read can miss a write that arrives
// between the two, and then a change is made twice. [Update] is a loop that
// does this correctly. An attempt that a timeout or a cancellation interrupts,
// and that returns no mark, ends the proposal.
//
// If a proposal ends before such a check, its error matches [ErrUnsure] besides
// the error for its reason. An error that does not match ErrUnsure means that
// nothing was written, provided that the operation marks its ambiguous failures,
// which [Update] always does.
//
// # When it ends
//
// After the policy's attempts: [ErrRetries], "max proposal retries exceeded",
// which wraps the last conflict. After the total timeout of the whole proposal,
// 30 seconds if the policy has none: [ErrTimeout]. A wait ends at once with the
// context.
//
// # Distant stores
//
// A fixed base fits one round-trip time. A base of 10 ms spreads writers whose
// attempts take 4 ms, but hardly those whose attempts take 200 ms: they start
// again while the winner is still writing. [Config].Scale sets the base as a
// multiple of the measured duration of an attempt; [Config.For] documents the
// rule and its bounds. The default has a Scale. With ten writers that start at once, five acceptors and
// 50 ms between them, all ten succeeded in none of 100 groups with the fixed
// base of the preset, and in all 100 with Scale 1.5 and with the default; at 1 ms
// there is no difference.
// TestScaleReachesDevicesThatAreFarAway repeats this measurement.
//
// # What it is not for
//
// For one writer whose calls fail use package retry. For many writers that are
// always busy use a queue in front of the store: optimistic writes would waste
// their work.
package contend
