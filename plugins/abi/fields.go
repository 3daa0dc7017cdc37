package abi

import "strings"

// Field numbers a standard request field. As with Column, guests use names.
type Field uint8

// The standard request fields.
const (
	FieldISLTokens Field = iota
	FieldISLBlocks
	FieldBlockSize
	FieldOSLEstimate
	FieldMaxTokens
	FieldPriority
	FieldTemperature
	FieldDeadlineMs
	FieldQueueAgeMs
	FieldHasLora
	FieldNTotalWorkers
	FieldSessionTurn
	FieldStreaming
	FieldMaxOverlapBlocks
	FieldMinOverlapBlocks
	FieldInputTrigger
	FieldSessionFinal
	FieldNowMs
	FieldDecisionID
	FieldTenant
	FieldModel
	FieldSession
	FieldParentSession
	FieldAdapter
	FieldPrefixHash

	// NumFields is the number of standard request fields.
	NumFields int = iota
)

// FieldInfo describes one standard request field; 0 means missing.
type FieldInfo struct {
	Name    string
	Unit    string
	Meaning string
	Since   int
}

// Fields returns the table of standard request fields, indexed by Field. The
// caller must not change it.
func Fields() []FieldInfo { return fieldTable[:] }

// String is the field's name.
func (f Field) String() string { return fieldTable[f].Name }

// FieldByName finds a standard request field.
func FieldByName(name string) (Field, bool) {
	for i := range fieldTable {
		if fieldTable[i].Name == name {
			return Field(i), true
		}
	}
	return 0, false
}

// Prefixes of the request fields that are not in the table: a request header
// from the operator's allow-list (as an id), and a value of the stage's
// configuration, after the request's overrides, by JSON pointer without the
// leading slash.
const (
	HeaderPrefix = "header."
	ConfigPrefix = "config."
)

// ConfigPointer returns the JSON pointer of a config.<pointer> field.
func ConfigPointer(name string) (pointer string, ok bool) {
	p, ok := strings.CutPrefix(name, ConfigPrefix)
	if !ok || p == "" {
		return "", false
	}
	return "/" + p, true
}

var fieldTable = [NumFields]FieldInfo{
	{"isl_tokens", "tokens", "prompt length", 0},
	{"isl_blocks", "blocks", "full blocks of the prompt", 0},
	{"block_size", "tokens", "the partition's block size", 0},
	{"osl_estimate", "tokens", "expected output length", 0},
	{"max_tokens", "tokens", "the request's output limit", 0},
	{"priority", "number", "the request's priority", 0},
	{"temperature", "number", "the request's sampling temperature", 0},
	{"deadline_ms", "ms", "time left until the request's deadline", 0},
	{"queue_age_ms", "ms", "time since the request arrived", 0},
	{"has_lora", "0 or 1", "1 when the request names an adapter", 0},
	{"n_total_workers", "ranks", "ranks of the partition, eligible or not", 0},
	{"session_turn", "number", "turn of the session, from 1", 0},
	{"streaming", "0 or 1", "1 when the answer is streamed", 0},
	{"max_overlap_blocks", "blocks", "largest kv.overlap_device of the candidates", 0},
	{"min_overlap_blocks", "blocks", "smallest kv.overlap_device of the candidates", 0},
	{"input_trigger", "number", "1 user message, 2 tool result, 3 other", 0},
	{"session_final", "0 or 1", "1 on the session's last request", 0},
	{"now_ms", "ms", "the decision's time since the Unix epoch", 0},
	{"decision_id", "id", "a number for this decision", 0},
	{"tenant", "id", "the request's tenant", 0},
	{"model", "id", "the request's model", 0},
	{"session", "id", "the request's session", 0},
	{"parent_session", "id", "the session that started this one", 0},
	{"adapter", "id", "the request's adapter", 0},
	{"prefix_hash", "id", "sequence hash of the prompt at a configured depth", 0},
}
