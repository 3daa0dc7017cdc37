//go:build oracle

package oracle_test

import (
	"context"
	"fmt"
	"net/http"
)

// bookSession books for a session, which binds it or finds it bound.
func (f *fleet) bookSession(ctx context.Context, body map[string]any, q wish, rows rows) error {
	session := fmt.Sprintf("s%d-%d", f.number, f.sessionsSpent*10+f.rng.IntN(4))
	if f.chance(50) {
		body["session_id"] = session
	} else {
		body["session_context"] = map[string]any{"session_id": session, "input_trigger": "user_message"}
	}
	among := f.bestOf(rows, q, defaultWeights)
	_, settled := among.only()
	steered := q.fields["affinity_target"] == nil
	bound, is := f.sessions[session]
	is = is && steered
	excluded := is && len(f.eligible([]row{{key: bound}}, q)) == 0
	switch {
	case is && !excluded:
		among = options{[]rankKey{bound}, []rankKey{bound}}
	case !is && !settled:
		f.led.count("sessions not bound, for they would bind among ties")
		return nil
	}
	// Once without booking, which binds nothing and goes past a binding that may not serve.
	// An advisory follows a binding, too.
	if f.chance(30) {
		body["advisory"] = true
	}
	if err := f.choose(ctx, "POST /select, session", "/select", body, among); err != nil {
		return err
	}
	delete(body, "advisory")
	f.name(body)
	x, y, err := f.both(ctx, http.MethodPost, "/select_and_reserve", body)
	if err != nil {
		return err
	}
	if excluded && x.status == http.StatusBadRequest {
		return f.boundElsewhere(ctx, session, body, q, x, y, bound)
	}
	f.decided("POST /select_and_reserve, session", "/select_and_reserve", body, x, y, among)
	if x.status == http.StatusOK && y.status == http.StatusOK {
		f.booked(body, y)
		if !is && steered {
			f.sessions[session] = chosen(x)
		}
	}
	return nil
}

// boundElsewhere is a booking that theirs refuses since the session is bound to a
// worker that may not serve it. Theirs has dropped the binding thereby, so that the
// session is not used any more.
func (f *fleet) boundElsewhere(ctx context.Context, session string, body map[string]any, q wish, x, y answer, bound rankKey) error {
	const what = "POST /select_and_reserve, bound elsewhere"
	f.sessionsSpent++
	delete(f.sessions, session)
	if y.status == http.StatusOK && len(q.required) > 0 && !f.equals {
		f.led.count(what)
		f.led.except("a session whose worker lacks a required taint is bound anew at once; theirs refuses and binds the next time")
		_, err := f.ours.call(ctx, http.MethodDelete, "/reservations/"+body["selection_id"].(string), nil)
		return err
	}
	if !f.judge(what, "POST /select_and_reserve", body, x, y, nil) || f.equals {
		return nil
	}
	plain := f.lookup(nil)
	plain["session_id"] = session
	p, o, err := f.both(ctx, http.MethodPost, "/select", plain)
	if err != nil {
		return err
	}
	if chosen(o) != bound {
		f.led.differ(what, "%s: ours has lost the binding of %s to %v: %d %s", f.at, session, bound, o.status, cut(o.text))
	} else if chosen(p) != bound {
		f.led.except("a refused booking leaves its session bound; theirs drops the binding")
	}
	return nil
}
