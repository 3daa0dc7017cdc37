package core

import (
	"math"
	"strconv"
	"time"

	"github.com/routerd/routerd/fleet"
)

// SessionContext says what session, of a person or an agent, a request belongs to.
type SessionContext struct {
	// ID names the session; empty for none. Parent is the session that started
	// it, as of a sub-agent.
	ID, Parent string
	// Final marks the session's last request.
	Final bool
	// Advice says that the session is for policies to see and binds nothing: of a
	// caller that is not to say where its requests go.
	Advice bool
	// Trigger is what made the agent ask.
	Trigger Trigger
	// AgentHeaders are what the agent's own headers say, by name in lower case.
	// Policies see the ids of their values, as of Request.Headers.
	AgentHeaders map[string]string
}

// Trigger is what made an agent ask, as policies see it (input_trigger).
type Trigger uint8

// The triggers.
const (
	TriggerUnknown Trigger = iota
	TriggerUserMessage
	TriggerToolResult
	TriggerOther
)

// Bounds of agent headers.
const (
	MaxAgentHeaders     = 64
	MaxAgentHeaderBytes = 16 << 10 // of a value
	MaxAgentBytes       = 32 << 10 // of all values
)

// maxJump bounds a priority jump.
const maxJump = 24 * time.Hour

// Constraints narrow and weigh workers by what their records say.
type Constraints struct {
	// RequiredTaints must all be among a worker's taints.
	RequiredTaints []string
	// PreferredTaints weigh a worker by those of them that it has: the column
	// taint.preference is exp(−tanh Σ), so that above 0 attracts.
	PreferredTaints map[string]float64
	// RequiredLabels must all be among a worker's labels with these values.
	RequiredLabels map[string]string
}

// empty tells whether nothing is required.
func (c *Constraints) empty() bool { return len(c.RequiredTaints) == 0 && len(c.RequiredLabels) == 0 }

// MaxConstraints bounds the taints and labels of each kind in a request.
const MaxConstraints = 64

// session is the structured session where there is one, else the flat one.
func (r *Request) session() string {
	if c := r.SessionContext; c != nil && c.ID != "" {
		return c.ID
	}
	return r.Session
}

// boundSession is the session whose binding the request follows and makes; empty
// for none.
func (r *Request) boundSession() string {
	if c := r.SessionContext; c != nil && c.ID != "" && c.Advice {
		return ""
	}
	return r.session()
}

func (r *Request) parentSession() string {
	if c := r.SessionContext; c != nil && (c.ID != "" || c.Parent != "") {
		return c.Parent
	}
	return r.ParentSession
}

func (r *Request) sessionFinal() bool {
	if c := r.SessionContext; c != nil && c.ID != "" {
		return c.Final
	}
	return r.SessionFinal
}

// checkSession refuses what is out of range in the session's context, the
// constraints and the queue's wishes.
func (r *Request) checkSession() error {
	if c := r.SessionContext; c != nil {
		for _, f := range []struct{ field, value string }{{"session_context.session_id", c.ID}, {"session_context.parent_session_id", c.Parent}} {
			if len(f.value) > MaxIDBytes {
				return invalid(&fleet.FieldError{Field: f.field, Value: f.value, Allowed: "at most 256 bytes"})
			}
		}
		if c.Trigger > TriggerOther {
			return invalid(&fleet.FieldError{Field: "session_context.input_trigger", Value: strconv.Itoa(int(c.Trigger)), Allowed: "user_message, tool_result, other"})
		}
		if err := checkAgentHeaders(c.AgentHeaders); err != nil {
			return err
		}
	}
	if r.PriorityJump < 0 || r.PriorityJump > maxJump {
		return invalid(&fleet.FieldError{Field: "priority_jump", Value: r.PriorityJump.String(), Allowed: "0 to 24h"})
	}
	if t := r.Target; t != nil && t.ID == nil && t.Name == "" {
		return invalid(&fleet.FieldError{Field: "affinity_target", Value: "", Allowed: "a worker's id or name"})
	}
	return r.Constraints.check()
}

func checkAgentHeaders(headers map[string]string) error {
	if n := len(headers); n > MaxAgentHeaders {
		return invalid(&fleet.FieldError{Field: "session_context.agent_headers", Value: strconv.Itoa(n), Allowed: "at most 64 headers"})
	}
	sum := 0
	for name, value := range headers {
		sum += len(value)
		if len(name) > MaxHeaderBytes || len(value) > MaxAgentHeaderBytes || sum > MaxAgentBytes {
			// The values themselves may be secrets.
			return invalid(&fleet.FieldError{Field: "session_context.agent_headers." + clip(name, 80), Value: strconv.Itoa(len(value)) + " bytes", Allowed: "at most 16 KiB a value, 32 KiB in all"})
		}
	}
	return nil
}

func (c *Constraints) check() error {
	for _, f := range []struct {
		field string
		n     int
	}{{"required_taints", len(c.RequiredTaints)}, {"preferred_taints", len(c.PreferredTaints)}, {"required_labels", len(c.RequiredLabels)}} {
		if f.n > MaxConstraints {
			return invalid(&fleet.FieldError{Field: "routing_constraints." + f.field, Value: strconv.Itoa(f.n), Allowed: "at most 64"})
		}
	}
	for name, weight := range c.PreferredTaints {
		if math.IsNaN(weight) || math.IsInf(weight, 0) {
			return invalid(&fleet.FieldError{Field: "routing_constraints.preferred_taints." + clip(name, 80), Value: strconv.FormatFloat(weight, 'g', -1, 64), Allowed: "a finite number"})
		}
	}
	return nil
}
