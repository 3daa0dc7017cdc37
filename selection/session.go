package selection

import (
	"strconv"
	"strings"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/httpapi"
	"github.com/routerd/routerd/internal/jsonscan"
)

// readSession reads a session_context.
func readSession(r *jsonscan.Reader) (*core.SessionContext, error) {
	c := &core.SessionContext{}
	o := object{r: r, path: fieldSessionContext.name(), fields: []string{"session_id", "parent_session_id", "session_final", "input_trigger", "agent_headers"}}
	err := o.read(func(i int) (err error) {
		name := o.path + "." + o.fields[i]
		if i > 0 && null(r) {
			return nil
		}
		if i == 4 {
			c.AgentHeaders, err = readAgentHeaders(r, name)
			return err
		}
		raw, err := r.Value()
		if err != nil {
			return err
		}
		switch i {
		case 0:
			c.ID, err = textOf(raw, name)
		case 1:
			c.Parent, err = textOf(raw, name)
		case 2:
			c.Final, err = isTrue(raw, name)
		case 3:
			c.Trigger, err = triggerOf(raw, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, o.require(0)
}

func triggerOf(raw []byte, name string) (core.Trigger, error) {
	switch string(raw) {
	case `"user_message"`:
		return core.TriggerUserMessage, nil
	case `"tool_result"`:
		return core.TriggerToolResult, nil
	case `"other"`:
		return core.TriggerOther, nil
	}
	return 0, wrongType(name, string(raw), "user_message, tool_result, other")
}

// readAgentHeaders reads header values by name, in lower case; several values of one are joined as in
// HTTP.
func readAgentHeaders(r *jsonscan.Reader, name string) (map[string]string, error) {
	const allowed = "an array of texts"
	if err := opens(r, '{', name, "an object of arrays"); err != nil {
		return nil, err
	}
	headers := map[string]string{}
	err := r.Object(func(key []byte) error {
		header := strings.ToLower(string(key))
		path := name + "." + header
		if _, twice := headers[header]; twice {
			return repeated(path)
		}
		values, err := readTexts(r, path, allowed)
		headers[header] = strings.Join(values, ", ")
		return err
	})
	return headers, err
}

func readTexts(r *jsonscan.Reader, name, allowed string) ([]string, error) {
	if err := opens(r, '[', name, allowed); err != nil {
		return nil, err
	}
	var texts []string
	err := r.Array(func(i int) error {
		raw, err := r.Value()
		if err != nil {
			return err
		}
		text, err := textOf(raw, name+"["+strconv.Itoa(i)+"]")
		texts = append(texts, text)
		return err
	})
	return texts, err
}

// readTarget reads a worker and a rank, which may be left out unless ranked.
func readTarget(r *jsonscan.Reader, name string, ranked bool) (*core.Pin, error) {
	pin := &core.Pin{}
	o := object{r: r, path: name, fields: []string{"worker_id", "dp_rank"}}
	err := o.scalars(func(i int, raw []byte, name string) error {
		if i == 0 {
			id, err := workerOf(raw, name)
			pin.ID = &id
			return err
		}
		n, err := countOf(raw, name, 1<<32-1)
		rank := uint32(n)
		pin.Rank = &rank
		return err
	})
	if err != nil {
		return nil, err
	}
	if ranked {
		return pin, o.require(0, 1)
	}
	return pin, o.require(0)
}

// readWorkers reads an array of worker ids. An empty one is not nil.
func readWorkers(r *jsonscan.Reader, name string) ([]string, error) {
	if err := opens(r, '[', name, "an array of worker ids"); err != nil {
		return nil, err
	}
	ids := []string{}
	err := r.Array(func(i int) error {
		if i == core.MaxAllowed {
			return httpapi.Invalid(name, "there are more", "at most "+strconv.Itoa(core.MaxAllowed)+" workers")
		}
		raw, err := r.Value()
		if err != nil {
			return err
		}
		var id fleet.WorkerID
		id, err = workerOf(raw, name+"["+strconv.Itoa(i)+"]")
		ids = append(ids, id.String())
		return err
	})
	return ids, err
}

// readConstraints reads routing_constraints.
func readConstraints(r *jsonscan.Reader, c *core.Constraints) error {
	o := object{r: r, path: fieldConstraints.name(), fields: []string{"required_taints", "preferred_taints"}}
	return o.read(func(i int) (err error) {
		name := o.path + "." + o.fields[i]
		if i == 0 {
			c.RequiredTaints, err = readTexts(r, name, "an array of taints")
			return err
		}
		if err := opens(r, '{', name, "an object of weights"); err != nil {
			return err
		}
		c.PreferredTaints = map[string]float64{}
		return r.Object(func(key []byte) error {
			taint := string(key)
			path := name + "." + taint
			if _, twice := c.PreferredTaints[taint]; twice {
				return repeated(path)
			}
			raw, err := r.Value()
			if err != nil {
				return err
			}
			weight, err := numberOf(raw, path, -3.4028235e38, 3.4028235e38, "a finite 32-bit number")
			c.PreferredTaints[taint] = float64(float32(weight))
			return err
		})
	})
}
