// Package fleet names what a router routes to: workers, their data-parallel
// ranks, partitions and worker records. It is vocabulary: plain values with
// validation, no state, no goroutines, safe for concurrent use.
//
//	key := fleet.PartitionKey{Model: "m1"}.Normalised() // group "default"
//	rec := fleet.Record{Name: "w1", URL: "http://127.0.0.1:8000", Model: "m1"}
//	rec, err := rec.Normalised() // id derived from the name, defaults filled
package fleet
