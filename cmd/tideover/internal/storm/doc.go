// Package storm detects retry storms, in which retries multiply the load. It computes the attempts
// per first attempt over a short window, for each layer that retries. [Watch] makes the decision and
// takes the time as an argument; [Alarm] samples counters and reports changes.
package storm
