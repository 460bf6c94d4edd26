// Package storm notices when retries multiply the load: attempts for each first
// attempt, over a short window, by the layer that makes them. [Watch] is the
// decision, and takes the time as an argument; [Alarm] samples counts that others
// keep, and tells.
package storm
