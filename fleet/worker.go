package fleet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/zeebo/xxh3"
)

// DefaultName is the model and the routing group of a partition that names
// none.
const DefaultName = "default"

// DefaultEngine is the engine kind of a worker of which nobody tells any.
const DefaultEngine = "vllm"

// WorkerID identifies one worker over all partitions. Every uint64 is valid.
// In JSON it travels as a number; a decimal string is accepted as well, since
// some clients lose digits above 2^53.
type WorkerID uint64

// IDFromName derives the id of a worker of which only the name is known:
// XXH3-64 of the name's UTF-8 bytes shifted right by 11, and 1 where that
// is 0.
func IDFromName(name string) WorkerID {
	if id := WorkerID(xxh3.HashString(name) >> 11); id != 0 {
		return id
	}
	return 1
}

// ParseWorkerID reads a decimal worker id.
func ParseWorkerID(s string) (WorkerID, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, &FieldError{Field: "id", Value: s, Allowed: "a decimal number from 0 to 18446744073709551615"}
	}
	return WorkerID(n), nil
}

// String is the id in decimal.
func (id WorkerID) String() string { return strconv.FormatUint(uint64(id), 10) }

// UnmarshalJSON accepts a JSON number or a decimal string.
func (id *WorkerID) UnmarshalJSON(b []byte) error {
	s := string(b)
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &s); err != nil {
			return fmt.Errorf("decode worker id: %w", err)
		}
	}
	v, err := ParseWorkerID(s)
	if err != nil {
		return err
	}
	*id = v
	return nil
}

// Worker is one data-parallel rank of a worker: the unit that load, cached
// blocks and decisions belong to.
type Worker struct {
	ID   WorkerID
	Rank uint32
}

// String is "id/rank" in decimal.
func (w Worker) String() string {
	return w.ID.String() + "/" + strconv.FormatUint(uint64(w.Rank), 10)
}

// Compare orders by id, then by rank.
func (w Worker) Compare(o Worker) int {
	if c := cmp.Compare(w.ID, o.ID); c != 0 {
		return c
	}
	return cmp.Compare(w.Rank, o.Rank)
}

// PartitionKey names a partition: a base model and a routing group.
type PartitionKey struct {
	Model string
	Group string
}

// Normalised fills an empty model or group with "default".
func (k PartitionKey) Normalised() PartitionKey {
	if k.Model == "" {
		k.Model = DefaultName
	}
	if k.Group == "" {
		k.Group = DefaultName
	}
	return k
}

// String is "model:group".
func (k PartitionKey) String() string { return k.Model + ":" + k.Group }
