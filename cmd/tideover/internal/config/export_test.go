package config

import "slices"

// What the tests of the documentation need.
var (
	FileSchema = fileSchema
	StepKinds  = stepKinds
	ItemFields = itemFields
	UndoFields = undoFields
)

// StepKeyNeeds returns what a key of a step requires; "" if every step can have it.
func StepKeyNeeds(name string) string {
	switch {
	case keyNeeds[name] != "":
		return keyNeeds[name]
	case slices.Contains(commandOnly, name):
		return "run"
	case slices.Contains(actionOnly, name):
		return "run or http"
	}
	return ""
}
