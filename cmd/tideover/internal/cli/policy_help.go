package cli

import "github.com/spf13/cobra"

const policyHelp = `A policy defines how long to wait between attempts, when to stop, and how much load
retries may add. It is one argument, so put it in quotes if it contains spaces.

  policy = ( family | preset ) { " " key "=" value }

  exponential(1s..32s) jitter=20% attempts=4
  http attempts=6 total-timeout=2m
  fixed(2s) attempts=unlimited

Families, with the delay before the k-th retry, without jitter:
  fixed(D[..CAP])          D
  linear(D[..CAP])         D x k
  exponential(D[..CAP])    D x factor^(k-1)
  decorrelated(D..CAP)     random, between D and three times the previous delay

Presets: PRESETS.

Keys, which override those of a preset:
  base, cap           as in the family; cap=none for no limit
  factor              growth of an exponential; default 2
  max-doublings       an exponential stops growing after this many steps
  jitter              none, 20%, +50%, 0.5..1.5, full (0..1), equal (0.5..1)
  attempts            total number, including the first, or unlimited; default 1
  attempt-timeout     time limit of one attempt
  total-timeout       time limit of the whole call, including waits
  throttle-base       base after the other side has throttled the call
  server-wait         longest delay stated by a server that is honoured; default 2m
  server-slack        added to such a delay
  reset-after         an attempt that lasts this long resets the count; for steps and sessions
  budget              none, refund(COST,CREDIT,MAX[,THROTTLED]), ratio(F), bucket(MAX,RATIO)
  hedge               none, 200ms, p95, either with /5% for the share of calls

Durations are written as 500ms, 1m30s, 2d. "tideover plan POLICY" shows the delays of
a policy.`

// newPolicyHelp returns the help topic "policy". Cobra treats a command without a RunE function as
// a help topic.
func newPolicyHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "policy",
		Short: "How a policy is written",
		Long:  withPresets(policyHelp),
	}
}
