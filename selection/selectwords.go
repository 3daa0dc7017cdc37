package selection

import (
	"errors"
	"fmt"
	"strings"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/httpapi"
)

// inDynamosWords says what the core refuses as Dynamo's service does, where that has
// other words or another status for it; all else stays as it is.
func (s *Server) inDynamosWords(err error, b *body) error {
	e, ok := errors.AsType[*core.Error](err)
	if !ok {
		return err
	}
	place, id := placeOf(b.partition), httpapi.Clip(b.id)
	switch e.Code {
	case core.CodeConflict:
		switch e.Field {
		case fieldSelectionID.name():
			return said(e, e.Code, "selection "+id+" is already reserved or being reserved")
		case fieldSessionID.name():
			return said(e, core.CodeSessionBound, e.Message)
		case fieldWorkerID.name():
			return said(e, core.CodeNotFound, b.whichWorker()+" not found "+place)
		}
	case core.CodePinUnknown:
		if e.Field == fieldWorkerID.name() {
			return said(e, core.CodeNotFound, b.whichWorker()+" not found "+place)
		}
	case core.CodeNotFound:
		return said(e, e.Code, "no pending selection "+id+" "+place+" (expired, already used, or never selected)")
	case core.CodeInvalid:
		if bad, ok := errors.AsType[*fleet.FieldError](e); ok && bad.Field == "session" {
			return &fleet.FieldError{Field: fieldSessionID.name(), Value: bad.Value, Allowed: bad.Allowed}
		}
		return b.override.named(err)
	}
	if e.Field == "pin" {
		if w, ok := s.notServing(e, b); ok {
			return said(e, core.CodeNoCandidates, fmt.Sprintf("pinned worker %s is not schedulable: %s", w.ID, strings.Join(answerOf(&w).NotSchedulableReasons, ", ")))
		}
		return said(e, e.Code, e.Message)
	}
	return s.noWorkers(err, b.partition)
}

// notServing is the pinned worker that the core does not know, since it lacks what it
// needs to serve its partition.
func (s *Server) notServing(e *core.Error, b *body) (Worker, bool) {
	if e.Code != core.CodePinUnknown || b.pin == nil || b.pin.ID == nil {
		return Worker{}, false
	}
	w, ok := s.parts.Workers.Find(*b.pin.ID)
	return w, ok && w.Partition() == b.partition.Normalised() && len(w.Reasons) > 0
}

// noWorkers says in Dynamo's words that nobody serves a partition; all else stays as
// it is.
func (s *Server) noWorkers(err error, key fleet.PartitionKey) error {
	e, ok := errors.AsType[*core.Error](err)
	if !ok || e.Code != core.CodeModelNotFound && e.Code != core.CodeNoWorkers {
		return err
	}
	if e.Field == "allow" || e.Field == "constraints" {
		return said(e, e.Code, "no endpoints available to route work: "+e.Message)
	}
	if len(s.parts.Core.Stats().Partitions) == 0 {
		return said(e, e.Code, "no schedulable workers are available")
	}
	return said(e, e.Code, "no schedulable workers "+placeOf(key))
}

// notReserved says in Dynamo's words that there is no such reservation.
func notReserved(id string, err error) error {
	if e, ok := errors.AsType[*core.Error](err); ok && e.Code == core.CodeNotFound {
		return said(e, e.Code, "reservation "+httpapi.Clip(id)+" not found")
	}
	return err
}

// said is an error of the core with another code and text, and the field by its name in
// the body.
func said(e *core.Error, code core.Code, message string) error {
	out := *e
	out.Code, out.Message = code, message
	switch e.Field {
	case "allow":
		out.Field = fieldAllowedWorkers.name()
	case "constraints":
		out.Field = fieldConstraints.name()
	case "model":
		out.Field = fieldModelName.name()
	case "pin":
		out.Field = fieldPinnedWorker.name()
	}
	return &out
}

func placeOf(key fleet.PartitionKey) string {
	key = key.Normalised()
	return "for model=" + httpapi.Clip(key.Model) + " routing_group=" + httpapi.Clip(key.Group)
}

func (b *body) whichWorker() string {
	if b.given.has(fieldWorkerID) {
		return "schedulable worker " + b.worker.String()
	}
	return "schedulable worker of the selection"
}
