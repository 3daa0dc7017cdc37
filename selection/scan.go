package selection

import (
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/httpapi"
	"github.com/routerd/routerd/internal/jsonscan"
	"github.com/routerd/routerd/kvcache"
)

// Bodies with a prompt are read in one walk: arrays of token ids and hashes, most of
// such a body, go straight into buffers that are used again.

// field is a field of a body with a prompt.
type field uint

// The fields.
const (
	fieldModelName field = iota
	fieldRoutingGroup
	fieldTokenIDs
	fieldMmRoutingInfo
	fieldBlockMmInfos
	fieldBlockHashes
	fieldSequenceHashes
	fieldIslTokens
	fieldLoraName
	fieldCacheSalt
	fieldIsEagle
	fieldOverride
	fieldSelectionID
	fieldExpectedOutput
	fieldPriorityJump
	fieldStrictPriority
	fieldSessionID
	fieldSessionContext
	fieldAffinityTarget
	fieldPinnedWorker
	fieldAllowedWorkers
	fieldConstraints
	fieldAdvisory
	fieldWorkerID
	fieldDpRank
	fieldEffective
	fieldTrackPrefill
	fieldCount
)

// fieldSet is a set of fields.
type fieldSet uint64

func (s fieldSet) has(f field) bool { return s>>f&1 == 1 }

// The fields of each kind of body.
const (
	partitionSet fieldSet = 1<<fieldModelName | 1<<fieldRoutingGroup
	promptSet    fieldSet = 1<<(fieldIsEagle+1) - 1<<fieldTokenIDs
	lookupSet             = partitionSet | promptSet | 1<<fieldOverride
	bookSet               = lookupSet | 1<<fieldAdvisory - 1<<fieldSelectionID
	selectSet             = bookSet | 1<<fieldAdvisory
	reserveSet            = lookupSet | 1<<fieldSelectionID | 1<<fieldExpectedOutput |
		1<<(fieldTrackPrefill+1) - 1<<fieldWorkerID
	querySet       = partitionSet | 1<<fieldTokenIDs | 1<<fieldLoraName | 1<<fieldCacheSalt
	queryByHashSet = partitionSet | 1<<fieldBlockHashes
)

// fieldNames are the fields' names in JSON.
var fieldNames = [fieldCount]string{
	"model_name", "routing_group", "token_ids", "mm_routing_info", "block_mm_infos", "block_hashes", "sequence_hashes", "isl_tokens", "lora_name",
	"cache_salt", "is_eagle", "router_config_override", "selection_id", "expected_output_tokens", "priority_jump", "strict_priority", "session_id",
	"session_context", "affinity_target", "pinned_worker", "allowed_worker_ids", "routing_constraints", "advisory", "worker_id", "dp_rank",
	"effective_prefill_tokens", "track_prefill_tokens",
}

// name is the field's name in JSON.
func (f field) name() string { return fieldNames[f] }

// nullable tells whether null is as good as leaving the field out.
func (f field) nullable() bool {
	switch f {
	case fieldModelName, fieldRoutingGroup, fieldConstraints, fieldAdvisory:
		return false
	}
	return true
}

// fieldNamed finds a field by its name.
func fieldNamed(key []byte) (field, bool) {
	for i, name := range fieldNames {
		if name == string(key) {
			return field(i), true
		}
	}
	return 0, false
}

// names lists the fields' names for a caller who sent another one.
func (s fieldSet) names() string {
	var all []string
	for rest := uint64(s); rest != 0; rest &= rest - 1 {
		all = append(all, field(bits.TrailingZeros64(rest)).name())
	}
	slices.Sort(all)
	return "the fields " + strings.Join(all, ", ")
}

// body is what a request with a prompt says. Its slices are used again: nothing of it
// may be kept after done, but strings.
type body struct {
	allowed, given, null fieldSet // null are those that are given as null

	partition  fleet.PartitionKey
	tokens     []uint32
	routing    []uint32 // of mm_routing_info
	blocks     []kvcache.BlockHash
	sequences  []kvcache.SequenceHash
	items      mmItems // of block_mm_infos
	routed     mmItems // of mm_routing_info
	isl        int
	adapter    string
	salt       string
	eagle      *bool
	override   overrides
	id         string
	expected   int
	jump       float64
	strict     int
	session    string
	context    *core.SessionContext
	target     *core.Pin
	pin        *core.Pin
	allow      []string
	constraint core.Constraints
	advisory   bool

	// Of a reservation.
	worker    fleet.WorkerID
	rank      uint32
	effective int
	track     bool

	reader  jsonscan.Reader
	request core.Request
}

// bodies are those that are not in use.
type bodies struct{ pool sync.Pool }

// maxKept bounds the buffers of a body that is used again, in elements.
const maxKept = 1 << 18

// read reads one that has only the allowed fields. An error says which field is wrong,
// and never what a prompt holds. done must be called with what it returns.
func (p *bodies) read(raw []byte, allowed fieldSet) (*body, error) {
	b, ok := p.pool.Get().(*body)
	if !ok {
		b = &body{tokens: []uint32{}, routing: []uint32{}}
	}
	b.reset(allowed)
	b.reader.Data, b.reader.Pos = raw, 0
	if err := b.scan(); err != nil {
		p.done(b)
		return nil, err
	}
	return b, nil
}

// done takes a body back; nil is none.
func (p *bodies) done(b *body) {
	if b == nil || b.items.large() || b.routed.large() || cap(b.tokens) > maxKept || cap(b.routing) > maxKept || cap(b.blocks) > maxKept || cap(b.sequences) > maxKept {
		return
	}
	b.reset(0)
	b.reader.Data = nil
	p.pool.Put(b)
}

func (b *body) reset(allowed fieldSet) {
	*b = body{
		allowed: allowed, tokens: b.tokens[:0], routing: b.routing[:0], blocks: b.blocks[:0], sequences: b.sequences[:0],
		items: b.items.emptied(), routed: b.routed.emptied(),
	}
}

func (b *body) scan() error {
	r := &b.reader
	if !jsonscan.Text(r.Data) {
		return httpapi.NoUnicode()
	}
	if r.Space(); r.Peek() != '{' {
		raw, err := r.Value()
		if err == nil {
			err = r.End()
		}
		if err != nil {
			return broken(err)
		}
		return wrongType("body", string(raw), "a JSON object")
	}
	err := r.Object(b.member)
	if err == nil {
		err = r.End()
	}
	return broken(err)
}

// member reads the member of which it gets the key.
func (b *body) member(key []byte) error {
	f, known := fieldNamed(key)
	if !known || !b.allowed.has(f) {
		return unknownField(string(key), b.allowed.names())
	}
	if (b.given | b.null).has(f) {
		return repeated(string(key))
	}
	if f.nullable() && null(&b.reader) {
		b.null |= 1 << f
		return nil
	}
	b.given |= 1 << f
	return b.set(f)
}

// set reads the value of a field.
func (b *body) set(f field) (err error) {
	r := &b.reader
	switch f {
	case fieldTokenIDs:
		b.tokens, err = tokensOf(r, f.name(), b.tokens)
		return err
	case fieldBlockHashes:
		b.blocks, err = hashesOf(r, f.name(), b.blocks)
		return err
	case fieldSequenceHashes:
		b.sequences, err = hashesOf(r, f.name(), b.sequences)
		return err
	case fieldMmRoutingInfo:
		return b.mmRoutingInfo()
	case fieldBlockMmInfos:
		return b.items.read(r, f.name())
	case fieldOverride:
		return b.override.read(r)
	case fieldSessionContext:
		b.context, err = readSession(r)
		return err
	case fieldAllowedWorkers:
		b.allow, err = readWorkers(r, f.name())
		return err
	case fieldConstraints:
		return readConstraints(r, &b.constraint)
	case fieldAffinityTarget, fieldPinnedWorker:
		return b.setTarget(f)
	default:
		return b.setScalar(f)
	}
}

func (b *body) setTarget(f field) (err error) {
	if f == fieldPinnedWorker {
		b.pin, err = readTarget(&b.reader, f.name(), true)
		return err
	}
	b.target, err = readTarget(&b.reader, f.name(), false)
	return err
}

// setScalar reads the value of a field that is no array and no object.
func (b *body) setScalar(f field) (err error) {
	raw, err := b.reader.Value()
	if err != nil {
		return err
	}
	name := f.name()
	switch f {
	case fieldModelName:
		b.partition.Model, err = textOf(raw, name)
	case fieldRoutingGroup:
		b.partition.Group, err = textOf(raw, name)
	case fieldIslTokens:
		b.isl, err = countOf(raw, name, math.MaxInt32)
	case fieldLoraName:
		b.adapter, err = textOf(raw, name)
	case fieldCacheSalt:
		b.salt, err = textOf(raw, name)
	case fieldIsEagle:
		b.eagle, err = truthOf(raw, name)
	case fieldSelectionID:
		b.id, err = textOf(raw, name)
	case fieldExpectedOutput:
		b.expected, err = countOf(raw, name, math.MaxInt32)
	case fieldPriorityJump:
		b.jump, err = numberOf(raw, name, 0, 86_400, "0 to 86400 seconds")
	case fieldStrictPriority:
		b.strict, err = countOf(raw, name, math.MaxUint32)
	case fieldSessionID:
		b.session, err = textOf(raw, name)
	case fieldAdvisory:
		b.advisory, err = isTrue(raw, name)
	case fieldWorkerID:
		b.worker, err = workerOf(raw, name)
	case fieldDpRank:
		var n int
		n, err = countOf(raw, name, math.MaxUint32)
		b.rank = uint32(n)
	case fieldEffective:
		b.effective, err = countOf(raw, name, math.MaxInt32)
	case fieldTrackPrefill:
		b.track, err = isTrue(raw, name)
	}
	return err
}
