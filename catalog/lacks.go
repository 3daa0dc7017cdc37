package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// The words that reasons of incomplete workers begin with. What follows the colon
// tells more; of a mismatch with the partition, "existing=X requested=Y".
const (
	urlMissing        = "url_missing"
	modelUnknown      = "model_unknown"
	modelMismatch     = "model_mismatch" // of one that is ready too
	blockSizeUnknown  = "block_size_unknown"
	blockSizeMismatch = "block_size_mismatch" // and is_eagle_mismatch, by the core's field
	dpSizeZero        = "dp_size_zero"
	eventsMissing     = "kv_events_missing"
	replayOfRanks     = "replay_unranked"
)

// incompleteError is why a worker is not ready: its reasons.
type incompleteError []string

func (e incompleteError) Error() string { return strings.Join(e, "; ") }

// reasonsOf are the words for an error of an attempt.
func reasonsOf(err error) []string {
	if lacking, ok := errors.AsType[incompleteError](err); ok {
		return lacking
	}
	return []string{err.Error()}
}

// lacksFirst tells what a record has to have before its engine is asked about the rest;
// nil for nothing. Of a record that somebody was asked for in other words all that is
// missing is told at once, as nothing else will come: then a block size that only the
// engine knows counts as missing too.
func (a *attempt) lacksFirst(configured int) error {
	if a.want.URL != "" && a.want.Asked == "" {
		return nil
	}
	rec := a.want
	if rec.Asked == "" {
		rec = shown(rec, nil)
	}
	err := lacking(rec, 1)
	out, ok := errors.AsType[incompleteError](err)
	if !ok {
		return nil
	}
	if a.want.BlockSize == 0 && configured == 0 {
		at := 0
		if a.want.URL == "" {
			at = 1
		}
		out = slices.Insert(out, at, blockSizeUnknown+": not configured, and the engine is asked once the rest is known")
	}
	return out
}

// lacking tells what a record of a worker of that block size does not have; nil for
// nothing.
func lacking(rec fleet.Record, blockSize int) error {
	var out incompleteError
	if rec.URL == "" {
		out = append(out, urlMissing+": nobody told where the worker is")
	}
	if blockSize == 0 {
		out = append(out, blockSizeUnknown+": nobody told it")
	}
	if rec.DPSize == 0 {
		out = append(out, dpSizeZero+": the worker has no rank")
	}
	if rec.RequireEvents {
		for _, rank := range rec.Ranks() {
			if rec.KVEvents[int(rank)] == "" {
				out = append(out, fmt.Sprintf("%s: rank %d", eventsMissing, rank))
			}
		}
	}
	if rec.Asked != "" && rec.DPSize > 1 && len(rec.Replay) > 0 {
		out = append(out, replayOfRanks+": a replay endpoint that names no rank serves one rank only")
	}
	if out == nil {
		return nil
	}
	return out
}

// mismatch turns the core's refusal of a block size or of Eagle into its word;
// other errors stay.
func mismatch(err error) error {
	unlike, ok := errors.AsType[*core.MismatchError](err)
	if !ok {
		return err
	}
	return incompleteError{fmt.Sprintf("%s_mismatch: existing=%s requested=%s", unlike.Field, unlike.Has, unlike.Requested)}
}

// shownModels bounds how many models of an engine a reason names.
const shownModels = 3

// otherModel says that the engine told that it does not serve the record's model, by no
// name and as no adapter; empty where it does or nobody knows. sure tells that it refuses
// each request for it: vLLM and llm-d's simulator do, SGLang and TensorRT-LLM answer
// whatever a request calls the model.
func otherModel(rec fleet.Record, facts *Facts) (reason string, sure bool) {
	model := rec.Partition().Model
	if rec.Asked != "" || facts == nil || facts.More || len(facts.Models) == 0 || slices.Contains(facts.Models, model) ||
		slices.ContainsFunc(facts.Adapters, func(a fleet.Adapter) bool { return a.Name == model }) {
		return "", false
	}
	var names []string
	for _, name := range facts.Models[:min(len(facts.Models), shownModels)] {
		names = append(names, strconv.Quote(name))
	}
	reason = fmt.Sprintf("%s: the record says %q, the engine serves %s", modelMismatch, model, strings.Join(names, ", "))
	if more := len(facts.Models) - len(names); more > 0 {
		reason += fmt.Sprintf(" and %d more", more)
	}
	return reason, facts.Engine == "vllm" || facts.Engine == "llm-d"
}
