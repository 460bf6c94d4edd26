// Package workflow has what a program defines and registers: workflows with their steps, options and
// inputs, handlers of steps, and the errors with which handlers ask for more than a retry. It knows
// nothing of runs in progress.
package workflow
