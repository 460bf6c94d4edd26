// Package storm detects when retries multiply the load: attempts per first attempt, over a short
// window, for each layer that retries. [Watch] makes the decision and takes the time as an
// argument; [Alarm] samples counters and reports changes.
package storm
