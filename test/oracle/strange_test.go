//go:build oracle

package oracle_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// strange does one of the things on which the two differ deliberately and that need
// more than one call. What it changes in either it takes back.
func (f *fleet) strange(ctx context.Context) error {
	to, is := f.readyRank()
	if !is {
		return nil
	}
	acts := []func(context.Context, rankKey) error{
		f.strangeBooking, f.strangeBooking, f.pinAgainstSession, f.pinAgainstSession, f.fewerTokens, f.moreTokens, f.emptyName, f.longList,
	}
	return acts[f.rng.IntN(len(acts))](ctx, to)
}

// readyRank is a rank that may serve.
func (f *fleet) readyRank() (k rankKey, is bool) {
	var all []rankKey
	for _, w := range f.workers {
		for _, p := range w.ranks {
			if w.ready {
				all = append(all, rankKey{w.id, p.rank})
			}
		}
	}
	if len(all) == 0 {
		return k, false
	}
	return all[f.rng.IntN(len(all))], true
}

// pinned are the fields of a selection of that rank, of a prompt that nobody holds.
func (f *fleet) pinned(to rankKey) object {
	body := f.lookup(f.tokens(1 + f.rng.IntN(3*f.block)))
	body["pinned_worker"] = object{"worker_id": to.worker, "dp_rank": to.rank}
	return body
}

// explicit are those of a booking of that rank.
func (f *fleet) explicit(to rankKey) object {
	body := f.pinned(to)
	delete(body, "pinned_worker")
	body["worker_id"], body["dp_rank"] = to.worker, to.rank
	return body
}

// freed ends a booking that one of them has, or both.
func (f *fleet) freed(ctx context.Context, id any) error {
	_, _, err := f.both(ctx, http.MethodDelete, fmt.Sprint("/reservations/", id), nil)
	return err
}

// strangeBooking is a booking that theirs takes and ours refuses.
func (f *fleet) strangeBooking(ctx context.Context, to rankKey) error {
	name, path, body, theirs := "", "/reservations", f.explicit(to), http.StatusCreated
	f.name(body)
	var sent any = body
	switch f.rng.IntN(3) {
	case 0:
		name = "an unknown field is refused: reservations"
		unknown := []object{
			{"bogus": 1},
			{"session_id": "s"},
			{"session_context": object{"session_id": "s"}},
			{"advisory": true},
			{"priority_jump": 1},
			{"allowed_worker_ids": []uint64{to.worker}},
			{"strict_priority": 1},
		}
		maps.Copy(body, unknown[f.rng.IntN(len(unknown))])
	case 1:
		name = "text after the JSON is refused: bookings"
		if f.chance(50) {
			id := body["selection_id"]
			path, body, theirs = "/select_and_reserve", f.pinned(to), http.StatusOK
			body["selection_id"] = id
		}
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = append(text, []string{" x", "{}", "]"}[f.rng.IntN(3)]...)
	default:
		name = "an id of more than 256 bytes is refused: selection_id"
		body["selection_id"] = body["selection_id"].(string) + strings.Repeat("x", 257)
	}
	if err := f.deliberate(ctx, name, http.MethodPost, path, sent, theirs, http.StatusBadRequest); err != nil {
		return err
	}
	return f.freed(ctx, body["selection_id"])
}

// pinAgainstSession pins a request of a session that is bound elsewhere.
func (f *fleet) pinAgainstSession(ctx context.Context, to rankKey) error {
	names := slices.Sorted(maps.Keys(f.sessions))
	if len(names) == 0 {
		return nil
	}
	session := names[f.rng.IntN(len(names))]
	bound := f.sessions[session]
	if to == bound {
		return nil
	}
	body := f.pinned(to)
	body["session_id"] = session
	x, y, _, err := f.same(ctx, "POST /select, pin against session", http.MethodPost, "/select", body, nil)
	if err != nil {
		return err
	}
	if x.status == http.StatusOK && (chosen(x) != to || chosen(y) != to) {
		f.led.differ("POST /select, pin against session", "%s: %s: theirs takes %v, ours %v", f.at, words(body), chosen(x), chosen(y))
	}
	f.name(body)
	if f.chance(40) {
		if _, _, _, err := f.same(ctx, "POST /select, pin against session, kept", http.MethodPost, "/select", body, nil); err != nil {
			return err
		}
		kept := object{"selection_id": body["selection_id"], "model_name": f.model, "routing_group": f.group}
		if _, _, _, err := f.same(ctx, "POST /reservations, pin against session, kept", http.MethodPost, "/reservations", kept, whole); err != nil {
			return err
		}
	} else {
		const name = "a booking with a pin whose session is bound elsewhere is refused"
		if err := f.deliberate(ctx, name, http.MethodPost, "/select_and_reserve", body, http.StatusOK, http.StatusBadRequest); err != nil {
			return err
		}
	}
	if err := f.freed(ctx, body["selection_id"]); err != nil {
		return err
	}
	return f.stays(ctx, session, bound)
}

// stays looks that a session is still bound where it was, in both.
func (f *fleet) stays(ctx context.Context, session string, bound rankKey) error {
	plain := f.lookup(nil)
	plain["session_id"] = session
	x, y, err := f.both(ctx, http.MethodPost, "/select", plain)
	if err != nil {
		return err
	}
	f.led.count("sessions that stay bound")
	if chosen(x) != bound || chosen(y) != bound {
		f.led.differ("sessions that stay bound", "%s: %s was bound to %v: theirs %d %s, ours %d %s", f.at, session, bound, x.status, cut(x.text), y.status, cut(y.text))
	}
	return nil
}

// byHashes are the fields of a prompt of hashes; n is how many.
func (f *fleet) byHashes(tokens []uint32) (body object, n int) {
	local, sequence := blockHashes(tokens, f.block)
	body = f.lookup(nil)
	delete(body, "token_ids")
	body["block_hashes"], body["sequence_hashes"] = nonNil(local), nonNil(sequence)
	return body, len(local)
}

// fewerTokens says that a prompt of hashes is shorter than they are. Ours counts what
// they cover.
func (f *fleet) fewerTokens(ctx context.Context, _ rankKey) error {
	const path = "/potential_loads"
	body, n := f.byHashes(f.prompt())
	if n == 0 {
		return nil
	}
	body["isl_tokens"] = n * f.block
	z, err := f.ours.call(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	body["isl_tokens"] = 1 + f.rng.IntN(n*f.block-1)
	x, y, err := f.both(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	const what = "POST /potential_loads, fewer tokens than hashes"
	f.led.count(what)
	view := byRank("")
	switch diff := unlike(view(tidy(z.body)), view(tidy(y.body))); {
	case f.equals && len(unlike(view(tidy(x.body)), view(tidy(y.body)))) == 0:
	case f.equals || x.status != y.status || z.status != y.status || len(diff) > 0:
		f.led.differ(what, "%s: %s: %d, ours %d, unlike what it says of as many as they cover: %v", f.at, words(body), x.status, y.status, diff)
	default:
		f.led.except("isl_tokens below what the hashes cover counts as what they cover")
	}
	return nil
}

// moreTokens books a prompt of hashes that is longer than they are. The load of theirs
// has only what they cover.
func (f *fleet) moreTokens(ctx context.Context, to rankKey) error {
	body, n := f.byHashes(f.tokens(f.block * (1 + f.rng.IntN(3))))
	tokens := n*f.block + 1 + f.rng.IntN(3*f.block)
	body["isl_tokens"] = tokens
	body["pinned_worker"] = object{"worker_id": to.worker, "dp_rank": to.rank}
	f.name(body)
	const what = "POST /select_and_reserve, more tokens than hashes"
	x, y, err := f.both(ctx, http.MethodPost, "/select_and_reserve", body)
	if err != nil {
		return err
	}
	f.untail(x.body, y.body, 0)
	if !f.judge(what, "POST /select_and_reserve", body, x, y, decided(false)) || x.status != http.StatusOK {
		return nil
	}
	b := booking{id: body["selection_id"].(string), on: to, tail: (tokens+f.block-1)/f.block - n}
	f.live = append(f.live, b)
	if err := f.loads(ctx); err != nil {
		return err
	}
	f.live = f.live[:len(f.live)-1]
	if _, _, _, err := f.same(ctx, "DELETE /reservations/{id}", http.MethodDelete, "/reservations/"+b.id, nil, whole); err != nil {
		return err
	}
	return f.loads(ctx)
}

// emptyName puts a worker whose model or group is an empty text: a name of its own
// there, that of one which is left out here.
func (f *fleet) emptyName(ctx context.Context, _ rankKey) error {
	field, name := "model_name", "an empty model_name is that of one which is left out"
	if f.chance(50) {
		field, name = "routing_group", "an empty routing_group is that of one which is left out"
	}
	at := object{"model_name": "unnamed", "routing_group": "unnamed"}
	put := object{"worker_id": 8, "endpoint": "http://127.0.0.1:9", "block_size": 4, "kv_events_endpoint": "tcp://127.0.0.1:9"}
	maps.Copy(put, at)
	put[field] = ""
	if _, _, _, err := f.same(ctx, "POST /workers, an empty name", http.MethodPost, "/workers", put, func(v any) any {
		m, _ := v.(map[string]any)
		return m["lifecycle"]
	}); err != nil {
		return err
	}
	at["token_ids"], at[field] = ids, ""
	if _, _, _, err := f.same(ctx, "POST /select, an empty name", http.MethodPost, "/select", at, nil); err != nil {
		return err
	}
	delete(at, field)
	if err := f.deliberate(ctx, name, http.MethodPost, "/select", at, http.StatusServiceUnavailable, http.StatusOK); err != nil {
		return err
	}
	_, _, err := f.both(ctx, http.MethodDelete, "/workers/8", nil)
	return err
}

// longList allows more workers than ours takes in a list.
func (f *fleet) longList(ctx context.Context, to rankKey) error {
	body := f.lookup(ids32)
	set := make([]uint64, 16_385)
	for i := range set {
		set[i] = to.worker + uint64(i)
	}
	body["allowed_worker_ids"] = set
	return f.deliberate(ctx, "more than 16,384 allowed_worker_ids are refused", http.MethodPost, "/select", body, http.StatusOK, http.StatusBadRequest)
}

var ids32 = []uint32{1, 2, 3, 4}
