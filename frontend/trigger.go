package frontend

import (
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/internal/jsonscan"
)

// triggerOf is what made an agent ask, by who speaks last in a chat's messages.
// It walks over all of them.
func triggerOf(messages []byte) core.Trigger {
	r := &jsonscan.Reader{Data: messages}
	if !r.Take('[') {
		return core.TriggerUnknown
	}
	var last []byte
	for {
		r.Space()
		message, err := r.Value()
		if err != nil { // an empty list ends here too
			break
		}
		last = message
		if r.Space(); !r.Take(',') {
			break
		}
	}
	var role []byte
	lr := &jsonscan.Reader{Data: last}
	_ = lr.Members(func(key, value []byte) error { // what is no message has no role
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
