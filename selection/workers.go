package selection

import (
	"cmp"
	"context"
	"slices"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/httpapi"
)

// putWorker adds or replaces a worker. A worker without a block size is answered
// once its engine was asked for it, at most 2 s later; what is not known by then
// is asked for again later.
func (s *Server) putWorker(ctx context.Context, x *exchange) error {
	rec, err := recordOf(x.rc.Request.Body())
	if err != nil {
		return err
	}
	w, err := s.parts.Workers.Put(ctx, rec)
	if err != nil {
		return err
	}
	return x.reply(201, answerOf(&w))
}

// recordOf reads the body of an upsert.
func recordOf(text []byte) (fleet.Record, error) {
	var body workerBody
	if err := httpapi.DecodeStrict(text, &body); err != nil {
		return fleet.Record{}, inWordsOfTheBody(err)
	}
	if body.WorkerID == nil {
		return fleet.Record{}, missing("worker_id")
	}
	body.workerFields.KvEventsEndpoints, body.workerFields.Taints = body.KvEventsEndpoints, body.Taints
	body.workerFields.TopologyDomains = body.TopologyDomains
	body.workerFields.RouterHintSourceControlEndpoints = body.RouterHintSourceControlEndpoints
	asked, err := body.asked()
	if err != nil {
		return fleet.Record{}, err
	}
	id := *body.WorkerID
	return body.record(fleet.Record{
		ID: id, Name: id.String(), Model: cmp.Or(orZero(body.ModelName), fleet.DefaultName), Engine: fleet.DefaultEngine, Group: orZero(body.RoutingGroup),
		RequireEvents: true, NoHealthCheck: true, Asked: asked,
	})
}

func (s *Server) listWorkers(_ context.Context, x *exchange) error {
	all, wanted := s.parts.Workers.List(), x.wantedPartition()
	all = slices.DeleteFunc(all, func(w Worker) bool { return !wanted(w.Partition()) })
	return x.reply(200, answersOf(all))
}

// wantedPartition tells which partitions the query asks for.
func (x *exchange) wantedPartition() func(fleet.PartitionKey) bool {
	key := fleet.PartitionKey{Model: x.query.Get("model_name"), Group: x.query.Get("routing_group")}.Normalised()
	return func(p fleet.PartitionKey) bool {
		return (!x.query.Has("model_name") || p.Model == key.Model) && (!x.query.Has("routing_group") || p.Group == key.Group)
	}
}

func (s *Server) patchWorker(ctx context.Context, x *exchange) error {
	id, err := workerID(x.id)
	if err != nil {
		return err
	}
	var patch workerPatch
	if err := httpapi.DecodeStrict(x.rc.Request.Body(), &patch); err != nil {
		return err
	}
	w, err := s.parts.Workers.Update(ctx, id, func(rec *fleet.Record) error { return patch.apply(rec) })
	if err != nil {
		return err
	}
	return x.reply(200, answerOf(&w))
}

// apply changes a record. One that was not put through this service keeps what the
// service has no words for.
func (p *workerPatch) apply(rec *fleet.Record) error {
	fields := fieldsOf(rec)
	fields.change(&p.workerFields)
	was := *rec
	if was.Asked == "" {
		if _, size := fields.ranks(); size == 0 {
			return outOfRange("data_parallel_size", "0", "1 or more for a worker of the admin API")
		}
	} else {
		asked, err := fields.asked()
		if err != nil {
			return err
		}
		was.Asked = asked
	}
	next, err := fields.record(was)
	if err != nil {
		return err
	}
	if was.Asked == "" {
		next = p.unsaid(was, next)
	}
	*rec = next
	return nil
}

// unsaid is the next record with what the service has no words for as it was: ranks that
// only the engine tells, and the replay sockets of several.
func (p *workerPatch) unsaid(was, next fleet.Record) fleet.Record {
	switch {
	case was.DPSize == 0 && p.DataParallelSize == nil:
		next.DPSize = 0
		if p.KvEventsEndpoint == nil && p.KvEventsEndpoints == nil {
			next.KVEvents = was.KVEvents
		}
		if p.ReplayEndpoint == nil {
			next.Replay = was.Replay
		}
	case next.DPSize > 1 && p.ReplayEndpoint == nil:
		next.Replay = within(was.Replay, next)
	}
	return next
}

// within are the endpoints of the record's ranks.
func within(endpoints map[int]string, r fleet.Record) map[int]string {
	var out map[int]string
	for rank, endpoint := range endpoints {
		if rank < r.DPStart || rank >= r.DPStart+r.DPSize {
			continue
		}
		if out == nil {
			out = map[int]string{}
		}
		out[rank] = endpoint
	}
	return out
}

func (s *Server) deleteWorker(ctx context.Context, x *exchange) error {
	id, err := workerID(x.id)
	if err != nil {
		return err
	}
	w, err := s.parts.Workers.Delete(ctx, id)
	if err != nil {
		return err
	}
	w.Lifecycle, w.Reasons = core.Ejected, nil
	return x.reply(200, answerOf(&w))
}

func workerID(text string) (fleet.WorkerID, error) {
	id, err := fleet.ParseWorkerID(text)
	if err != nil {
		return 0, outOfRange("worker_id", text, "a decimal number from 0 to 18446744073709551615")
	}
	return id, nil
}

// lifecycleOf is the word of this API for a lifecycle.
func lifecycleOf(l core.Lifecycle) string {
	switch l {
	case core.Ready:
		return "schedulable"
	case core.Draining:
		return "draining"
	case core.Ejected:
		return "unschedulable"
	}
	return "incomplete"
}

func answerOf(w *Worker) workerAnswer {
	out := workerAnswer{
		WorkerID: uint64(w.ID), ModelName: w.Model, RoutingGroup: w.Group,
		Lifecycle: lifecycleOf(w.Lifecycle), workerFields: fieldsOf(&w.Record),
	}
	if w.Lifecycle == core.Ready {
		return out
	}
	for _, reason := range w.Reasons {
		out.NotSchedulableReasons = append(out.NotSchedulableReasons, reasonText(w.Partition(), reason))
	}
	return out
}

func answersOf(all []Worker) []workerAnswer {
	out := make([]workerAnswer, len(all))
	for i := range all {
		out[i] = answerOf(&all[i])
	}
	return out
}
