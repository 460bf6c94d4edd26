package control

import (
	"fmt"
	"strings"
)

// Silent returns a sentence that names the shards that did not answer; "" for an empty list.
func Silent(shards []int) string {
	switch len(shards) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("shard %d did not answer; its runs are missing", shards[0])
	}
	return fmt.Sprintf("shards %s did not answer; their runs are missing", numbers(shards))
}

// NotChanged returns a sentence that names the shards that did not answer when their runs were to be
// changed.
func NotChanged(shards []int) string {
	if len(shards) == 1 {
		return fmt.Sprintf("the runs of shard %d were not changed", shards[0])
	}
	return fmt.Sprintf("the runs of the shards %s were not changed", numbers(shards))
}

// numbers formats a sorted list, such as "1, 4-7": three or more consecutive numbers become a
// range.
func numbers(list []int) string {
	var parts []string
	for i := 0; i < len(list); {
		end := i
		for end+1 < len(list) && list[end+1] == list[end]+1 {
			end++
		}
		if end < i+2 {
			parts = append(parts, fmt.Sprint(list[i]))
			i++
			continue
		}
		parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[end]))
		i = end + 1
	}
	return strings.Join(parts, ", ")
}

// NotNil returns an empty list for nil, which JSON would encode as null.
func NotNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
