package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/httpapi"
)

type workerList struct {
	Workers []Worker `json:"workers"`
}

func (s *Server) listWorkers(_ context.Context, x *exchange) error {
	return x.reply(fasthttp.StatusOK, workerList{append([]Worker{}, s.parts.Workers.Workers()...)})
}

func (s *Server) showWorker(_ context.Context, x *exchange) error {
	v, ok := s.parts.Workers.Worker(x.name)
	if !ok {
		return fmt.Errorf("worker %q: %w", httpapi.Clip(x.name), api.ErrNotFound)
	}
	return x.reply(fasthttp.StatusOK, v)
}

func (s *Server) putWorker(ctx context.Context, x *exchange) error {
	var rec fleet.Record
	if err := httpapi.DecodeStrict(x.rc.Request.Body(), &rec); err != nil {
		return err
	}
	if err := s.address(x.name, &rec); err != nil {
		return err
	}
	if err := rec.Located(); err != nil {
		return err
	}
	v, created, err := s.parts.WorkerSource.Put(ctx, rec)
	if err != nil {
		return err
	}
	return s.replyWorker(x, putStatus(created), v)
}

// address fills the record's id or name from the path, which may be either, and
// refuses a body that contradicts it. A worker that is addressed by its name
// keeps its id.
func (s *Server) address(ref string, rec *fleet.Record) error {
	known, exists := s.parts.Workers.Worker(ref)
	id, err := fleet.ParseWorkerID(ref)
	switch byID := err == nil; {
	case rec.Name == ref:
		if rec.ID == 0 && exists && known.Name == ref {
			rec.ID = known.ID
		} else if rec.ID == 0 && byID {
			rec.ID = id
		}
	case byID && (rec.ID == 0 || rec.ID == id):
		rec.ID = id
	case byID:
		return &fleet.FieldError{Field: "id", Value: rec.ID.String(), Allowed: ref + ", as in the path"}
	case rec.Name != "":
		return &fleet.FieldError{Field: "name", Value: rec.Name, Allowed: httpapi.Clip(ref) + ", as in the path"}
	default:
		rec.Name = ref
		if rec.ID == 0 && exists && known.Name == ref {
			rec.ID = known.ID
		}
	}
	return nil
}

func (s *Server) deleteWorker(ctx context.Context, x *exchange) error {
	if _, err := s.parts.WorkerSource.Delete(ctx, x.name); err != nil {
		return err
	}
	x.rc.SetStatusCode(fasthttp.StatusNoContent)
	return nil
}

// drainBody is how long a worker may finish what it has, as of time.ParseDuration.
type drainBody struct {
	Timeout *string `json:"timeout,omitempty"`
}

func (s *Server) drainWorker(_ context.Context, x *exchange) error {
	var in drainBody
	if err := decodeOptional(x.rc.Request.Body(), &in); err != nil {
		return err
	}
	limit := catalog.DefaultDrain
	if in.Timeout != nil {
		d, err := time.ParseDuration(*in.Timeout)
		if err != nil {
			return &fleet.FieldError{Field: "timeout", Value: *in.Timeout, Allowed: `a length of time such as "30s" or "10m", up to 24h`}
		}
		limit = d
	}
	v, err := s.parts.Drains.Drain(x.name, limit)
	if err != nil {
		return err
	}
	return s.replyWorker(x, fasthttp.StatusOK, v)
}

func (s *Server) undrainWorker(ctx context.Context, x *exchange) error {
	v, err := s.parts.Drains.Undrain(ctx, x.name)
	if err != nil {
		return err
	}
	return s.replyWorker(x, fasthttp.StatusOK, v)
}

// replyWorker answers a worker with its ranks, or without where it has left meanwhile.
func (s *Server) replyWorker(x *exchange, status int, v catalog.View) error {
	w, ok := s.parts.Workers.Worker(v.ID.String())
	if !ok {
		w = Worker{View: v, Ranks: []WorkerRank{}}
	}
	return x.reply(status, w)
}

type sourceList struct {
	Sources []catalog.SourceStatus `json:"sources"`
}

func (s *Server) listSources(_ context.Context, x *exchange) error {
	return x.reply(fasthttp.StatusOK, sourceList{append([]catalog.SourceStatus{}, s.parts.Sources.Status()...)})
}
