package core

import (
	"fmt"
	"strings"
)

// mostUnready bounds how many workers an unreadyError names.
const mostUnready = 3

// unreadyError says why the workers that a request could have gone to are not ready. It has
// their addresses: it is for logs, not for callers.
type unreadyError struct {
	members []*member // mostUnready at most
	more    int       // beyond these
}

// Error names the workers with address, lifecycle and reasons.
func (e *unreadyError) Error() string {
	var all []string
	for _, m := range e.members {
		text := fmt.Sprintf("worker %q at %s is %s", clip(m.record.Name, 80), m.record.URL, m.lifecycle)
		if len(m.reasons) > 0 {
			text += ": " + strings.Join(m.reasons, ", ")
		}
		all = append(all, text)
	}
	if e.more > 0 {
		all = append(all, fmt.Sprintf("and %d more", e.more))
	}
	return strings.Join(all, "; ")
}

// unready are the workers of the view that only their lifecycle keeps from the request; nil
// when there are none. allow must have been called.
func (a *attempt) unready(v *view, pinned *member) error {
	var e unreadyError
	var last *member // the ranks of a worker stand side by side
	for i := range v.rows {
		r := &v.rows[i]
		switch {
		case r.member == last || a.standing(r, pinned) != notReady:
			continue
		case len(e.members) < mostUnready:
			e.members = append(e.members, r.member)
		default:
			e.more++
		}
		last = r.member
	}
	if len(e.members) == 0 {
		return nil
	}
	return &e
}
