// Package advise finds a policy for a service and a goal, by simulation.
//
//	service := advise.Service{Rate: 200, Capacity: 300, Latency: 100 * time.Millisecond, Errors: 0.02, Outage: 30 * time.Second}
//	goal := advise.Goal{Success: 0.999, Recovery: 10 * time.Second}
//	a, err := advise.For(ctx, advise.Request{Cases: service.Cases(goal)}, advise.Options{})
//
// It simulates candidates, keeps the best, simulates these with more seeds, and so on
// (successive halving). Their timeouts and delays are multiples of the latency, of the
// time in the queue, of the outage and of the deadline. Then it varies the best one in
// every direction; as long as no candidate reaches the goal, it varies the best ones at
// random. It removes each feature of the winner, one at a time, and reports the measure
// that gets worse as the reason for that feature; and it changes each setting, and
// reports the values that make no difference.
//
// Finally it measures the winner once more, with other seeds and for much longer: only
// that measurement is the promise. If the winner does worse there than another candidate
// did in the search, the other one is measured, too, and the better one is advised.
// Naive policies are always among the candidates: one attempt that waits until the
// deadline, three attempts with a second between them, exponential delays with full
// jitter, every preset, and the caller's own policies.
//
// One function, preferred, says which policy is better:
//
//   - It reaches the goal.
//   - Its retries can't keep the service in an overload that begins by chance.
//   - On an ordinary day, more calls succeed.
//   - The service recovers, and in the other scenarios no fewer calls succeed than with
//     a single attempt that waits until the deadline.
//   - It has jitter and an attempt timeout.
//   - It puts less load on the service.
//   - Its slow calls are faster.
//   - It is simpler.
//
// If no policy reaches the goal, the one that does the least harm is returned: on an
// ordinary day no other lets more calls succeed, and of those that are equal in this it
// is the closest to the goal. If the goal is reached at the expense of an ordinary day, or
// if another policy is closer to a goal that none reaches, Advice.Losses says so.
//
// The advice is only as good as the scenarios, which say what can fail. It is a
// starting point, not a proof.
package advise
