package frontend

import "github.com/routerd/routerd/core"

// triggerOf is what made an agent ask, by who speaks last in a chat's messages.
// It walks over all of them.
func triggerOf(messages []byte) core.Trigger {
	r := &reader{data: messages}
	if !r.take('[') {
		return core.TriggerUnknown
	}
	var last []byte
	for {
		r.space()
		message, err := r.value()
		if err != nil { // an empty list ends here too
			break
		}
		last = message
		if r.space(); !r.take(',') {
			break
		}
	}
	var role []byte
	lr := &reader{data: last}
	_ = lr.members(func(key, value []byte) error { // what is no message has no role
		if string(key) == "role" {
			role = value
		}
		return nil
	})
	switch string(role) {
	case "":
		return core.TriggerUnknown
	case `"user"`:
		return core.TriggerUserMessage
	case `"tool"`, `"function"`:
		return core.TriggerToolResult
	}
	return core.TriggerOther
}
