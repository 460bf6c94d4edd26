// Package advise finds a policy for a service and a goal, by simulation.
//
//	service := advise.Service{Rate: 200, Capacity: 300, Latency: 100 * time.Millisecond, Errors: 0.02, Outage: 30 * time.Second}
//	goal := advise.Goal{Success: 0.999, Recovery: 10 * time.Second}
//	a, err := advise.For(ctx, advise.Request{Cases: service.Cases(goal)}, advise.Options{})
//
// It simulates candidates, keeps the best third, simulates these with more
// seeds, and so on (successive halving). Then it varies the best one in every
// direction. Of policies that are tied it takes the simplest. It removes each
// feature of the winner, one at a time, and reports the measure that gets worse
// as the reason for that feature; and it changes each setting, and reports the
// values that make no difference. Finally it measures the winner once more,
// with more runs and other seeds: only that measurement is the promise.
//
// Policies that reach the goal are ranked by these criteria, in this order:
//
//   - They do no harm: no fewer calls succeed than with a single attempt that
//     waits until the deadline, and the service recovers.
//   - They put less load on the service.
//   - Their slow calls are faster.
//   - They are simpler.
//
// If no policy reaches the goal, the closest one is returned, with the parts of
// the goal that it misses and by how much.
//
// The advice is only as good as the scenarios, which say what can fail. It is a
// starting point, not a proof.
package advise
