// Package advise finds a policy for a service and a goal, by simulation.
//
//	service := advise.Service{Rate: 200, Capacity: 300, Latency: 100 * time.Millisecond, Errors: 0.02, Outage: 30 * time.Second}
//	goal := advise.Goal{Success: 0.999, Recovery: 10 * time.Second}
//	a, err := advise.For(ctx, advise.Request{Cases: service.Cases(goal, 0)}, advise.Options{})
//
// It lets candidates go through the scenarios, keeps the best third, lets these go
// through more of them, and so on (successive halving); changes the best one a
// little in every direction; and then takes away, one at a time, each thing the
// winner has: what is worse without it is the reason for it.
//
// Among the policies that reach the goal, the one is best that does no harm: no
// fewer calls succeed than with one patient attempt, and the service recovers;
// among those alike, the one that puts the least load on it; among those alike, the one whose slow calls are fastest; among
// those alike, the simplest. When none reaches the goal, the one that comes
// closest is returned, with what it misses and by how much.
//
// What is found is as true as the scenarios are: they say what can go wrong. It is
// a place to begin, not a proof.
package advise
