package abi

// FrameField is one fixed field of the frame header.
type FrameField struct {
	Offset  uint32
	Name    string
	Type    string // u32, u64, or "u32 ->" and the type of the block that the offset leads to
	Meaning string
	Guest   bool // the guest may write it, or the block that it leads to
	Since   int  // ABI minor that brought it
}

// Offsets of the header's fields from the frame's start; all values are
// little-endian. "Start" fields hold an offset from the frame's start.
const (
	OffMagic        = 0
	OffHeaderSize   = 4
	OffRows         = 8
	OffCapacity     = 12
	OffStride       = 16
	OffColumns      = 20
	OffColumnStarts = 24
	OffScores       = 28
	OffMask         = 32
	OffRequest      = 36
	OffRequestCount = 40
	OffRowIDs       = 44
	OffSeed         = 48
	OffPick         = 72
	OffFlags        = 76
	OffOutFlags     = 80
	OffPhase        = 84
	OffAdapter      = 88
)

// Sizes and constants of the frame.
const (
	FrameMagic  = 0x31465052 // "RPF1" in memory
	HeaderSize  = 128        // in v1; it only grows
	FrameAlign  = 64         // of the frame and of each block in it
	AdapterSize = 64
	MaxRows     = 65_536 // the largest max_rows of a manifest

	// PickNone is what the host presets at OffPick.
	PickNone = 0xffffffff
)

// Flags are the in-flags of a call, at OffFlags. Guests ignore unknown bits.
type Flags uint32

// The in-flags.
const (
	FlagAdvisory      Flags = 1  // nothing will be booked
	FlagDequeuedAgain Flags = 4  // the request was decided before and waited
	FlagPinned        Flags = 8  // the caller named the worker
	FlagSessionBound  Flags = 16 // the request's session is bound to a worker
)

// OutFlags are what a guest may set at OffOutFlags; the host presets 0 and
// refuses unknown bits.
type OutFlags uint32

// OutTieBreak asks the host to draw among the best rows itself.
const OutTieBreak OutFlags = 1

// KnownOutFlags is the set of out-flags that this version understands.
const KnownOutFlags = OutTieBreak

// Bit patterns of the two NaNs that the host writes. Any other NaN in a score
// is the guest's: no opinion about that row.
const (
	// UnwrittenBits presets every score: a kept row that still holds it was
	// not written. The payload spells "rp unw".
	UnwrittenBits uint64 = 0x7ff8_7270_756e_7700
	// CanonicalNaNBits is the only NaN that the host puts into columns, and
	// only where the manifest says "missing": "nan".
	CanonicalNaNBits uint64 = 0x7ff8_0000_0000_0000
)

// Offsets in the adapter block; each value is a float64.
const (
	AdapterID             = 0
	AdapterRank           = 8
	AdapterSizeBytes      = 16
	AdapterReplicasWanted = 24
	AdapterReplicasLoaded = 32
	AdapterReplicasComing = 40
)

// FrameFields returns the header's table in order of offset. The caller must
// not change it.
func FrameFields() []FrameField { return frameTable[:] }

// AdapterFields returns the adapter block's table in order of offset. The
// caller must not change it.
func AdapterFields() []FrameField { return adapterTable[:] }

var frameTable = [...]FrameField{
	{OffMagic, "magic", "u32", "0x31465052", false, 0},
	{OffHeaderSize, "header_size", "u32", "128 in v1; only grows, so check it before reading past 128", false, 0},
	{OffRows, "n", "u32", "rows now", false, 0},
	{OffCapacity, "capacity", "u32", "rows that fit", false, 0},
	{OffStride, "stride", "u32", "rows from one column's start to the next", false, 0},
	{OffColumns, "columns", "u32", "number of columns of the manifest", false, 0},
	{OffColumnStarts, "column_starts", "u32 -> u32[columns]", "start of each column in manifest order, 0 = absent on this host", false, 0},
	{OffScores, "scores", "u32 -> f64[stride]", "the guest's scores, preset to the unwritten NaN", true, 0},
	{OffMask, "mask", "u32 -> u8[stride]", "in 1 = eligible so far; a filter writes 0 or 1", true, 0},
	{OffRequest, "request", "u32 -> f64[request_count]", "request fields in manifest order", false, 0},
	{OffRequestCount, "request_count", "u32", "number of request fields", false, 0},
	{OffRowIDs, "row_ids", "u32 -> u32[n]", "a number for each row, for this frame only", false, 0},
	{OffSeed, "seed", "u64", "chosen by the host and recorded", false, 0},
	{OffPick, "pick", "u32", "row that a picker chose, preset 0xffffffff = none", true, 0},
	{OffFlags, "flags", "u32", "1 advisory, 4 dequeued again, 8 pinned, 16 session-bound; ignore others", false, 0},
	{OffOutFlags, "out_flags", "u32", "1 wants the host's tie-break; preset 0, others are refused", true, 0},
	{OffPhase, "phase", "u32", "0 in v1, reserved", false, 0},
	{OffAdapter, "adapter", "u32 -> adapter block", "0 when the request names no adapter", false, 0},
}

var adapterTable = [...]FrameField{
	{AdapterID, "id", "f64", "id of the adapter's name", false, 0},
	{AdapterRank, "rank", "f64", "rank of the adapter's matrices", false, 0},
	{AdapterSizeBytes, "size_bytes", "f64", "bytes of its weights", false, 0},
	{AdapterReplicasWanted, "replicas_wanted", "f64", "workers that should hold it", false, 0},
	{AdapterReplicasLoaded, "replicas_loaded", "f64", "workers that hold it", false, 0},
	{AdapterReplicasComing, "replicas_loading", "f64", "workers that are loading it", false, 0},
}
