package selection

import (
	"encoding/json"

	"github.com/routerd/routerd/fleet"
)

// RecordOf reads the body of an upsert.
func RecordOf(body []byte) (fleet.Record, error) { return recordOf(body) }

// FieldsOf are a record's fields as an answer shows them.
func FieldsOf(r *fleet.Record) ([]byte, error) { return json.Marshal(fieldsOf(r)) }

// Patched is the record after a change.
func Patched(r fleet.Record, patch []byte) (fleet.Record, error) {
	var p workerPatch
	if err := json.Unmarshal(patch, &p); err != nil {
		return r, err
	}
	err := p.apply(&r)
	return r, err
}
