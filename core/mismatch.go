package core

import (
	"strconv"

	"github.com/routerd/routerd/fleet"
)

// MismatchError says that a worker is not as the first one of its partition was,
// where all must be alike. It unwraps to a *fleet.FieldError.
type MismatchError struct {
	Partition fleet.PartitionKey
	// Field is block_size or is_eagle.
	Field string
	// Has is the partition's value, Requested the worker's.
	Has, Requested string
}

// Error names the field and both values.
func (e *MismatchError) Error() string { return e.Unwrap().Error() }

// Unwrap is the refused field.
func (e *MismatchError) Unwrap() error {
	return &fleet.FieldError{Field: e.Field, Value: e.Requested, Allowed: e.Has + ", the partition's"}
}

func (p *Partition) checkBlockSize(n int) error {
	if n == p.blockSize {
		return nil
	}
	return &MismatchError{Partition: p.key, Field: "block_size", Has: strconv.Itoa(p.blockSize), Requested: strconv.Itoa(n)}
}

// eagleMismatch is the error of a worker that is unlike the others of its partition.
func eagleMismatch(key fleet.PartitionKey, has bool) error {
	return &MismatchError{Partition: key, Field: "is_eagle", Has: strconv.FormatBool(has), Requested: strconv.FormatBool(!has)}
}
