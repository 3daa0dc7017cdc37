// Package wire decodes the KV-event batches that inference engines publish.
//
// A batch is the msgpack array [ts, events, rank?]; each event is an array with its tag first or a map with the key
// "type", and the two may be mixed. The decoder is a hand-written cursor over the payload: it checks every length
// against the bytes that are left before it reserves memory, goes at most 16 levels deep, never panics, and reuses
// the caller's Batch. A payload that is no batch is an error and gives no event at all; one bad event in a good
// batch costs that event and is counted with its reason.
//
// DecodeLoad reads what engines publish of their load.
//
// The package knows neither sockets nor indexes, has no state between calls and starts no goroutine.
//
//	var b wire.Batch
//	if err := wire.DecodeBatch(payload, &b); err != nil { … }
//	for i := range b.Events { … }
package wire
