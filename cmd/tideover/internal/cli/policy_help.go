package cli

import "github.com/spf13/cobra"

const policyHelp = `A policy says how long to wait, when to stop and what retries may cost. It is one
argument, so it stands in quotes when it has spaces.

  policy = ( family | preset ) { " " key "=" value }

  exponential(1s..32s) jitter=20% attempts=4
  http attempts=6 total-timeout=2m
  fixed(2s) attempts=unlimited

Families; the k-th retry waits, before jitter:
  fixed(D[..CAP])          D
  linear(D[..CAP])         D x k
  exponential(D[..CAP])    D x factor^(k-1)
  decorrelated(D..CAP)     between D and three times the delay before

Presets: PRESETS.

Keys, which override those of a preset:
  base, cap           as in the family; cap=none for no limit
  factor              growth of an exponential, 2 unless said
  max-doublings       an exponential stops growing after so many steps
  jitter              none, 20%, +50%, 0.5..1.5, full (0..1), equal (0.5..1)
  attempts            tries in all, the first included, or unlimited; 1 unless said
  attempt-timeout     ends one attempt
  total-timeout       ends everything, waits included
  throttle-base       base after the other side asked for less
  server-wait         longest delay stated by a server that is honoured, 2m unless said
  server-slack        added to such a delay
  reset-after         an attempt that lasts so long clears the count; for steps and sessions
  budget              none, refund(COST,CREDIT,MAX[,THROTTLED]), ratio(F), bucket(MAX,RATIO)
  hedge               none, 200ms, p95, either with /5% for the share of calls

Durations are like 500ms, 1m30s, 2d. "tideover plan POLICY" draws a policy.`

// newPolicyHelp is a topic of the help, not a command.
func newPolicyHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "policy",
		Short: "How a policy is written",
		Long:  withPresets(policyHelp),
	}
}
