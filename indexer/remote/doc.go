// Package remote is the index of a router that has none: a client reads the index of
// another router, its primary, and tells it of what it decides; a Server is the primary's
// half. The client opens no subscription to any worker.
//
// A Client never makes a selection fail, and costs it at most Config.Deadline. Where the
// primary does not answer in time, or answers with an error, it is away: every find says
// at once that nobody holds anything and that no rank is to be trusted, so that requests
// are routed by load, until Run has had an answer within the deadline. Finds of many
// goroutines share requests: one is under way at a time, and those who come meanwhile go
// with the next. What is recorded waits in a queue that drops its oldest.
//
// The package knows neither HTTP nor sockets: internal/app gives the client its Transport
// and mounts the Server. Workers are told by their ids, which must be the same on both
// sides, and prompts by their local block hashes.
//
// # Messages
//
// Both routes take and give a message, of version 1. All numbers are unsigned and
// little-endian. A message begins with 12 bytes:
//
//	4  "rdix"
//	1  version, 1
//	1  kind: 1 find, 2 its answer, 3 record, 4 its answer
//	2  zero
//	4  items: 1 to 1,024 finds, their answers, or 1 to 8,192 records; none to see who is there
//
// and has nothing behind its last item. A find (POST /index/v1/find) is
//
//	2  length of the model's name, at most 1,024, and the name
//	2  length of the routing group's name, at most 1,024, and the name
//	4  block size in tokens
//	4  number of hashes, at most 65,536
//	4  number of ranks, at most 65,536
//	8  for each, the local hash of a block of the prompt, in order
//	12 for each rank: 8 worker id, 4 rank
//
// Answers are in the order of the finds. Each is
//
//	4  bytes that follow
//	1  0: answered; 1: the primary has no such partition; 2: its blocks have another size
//
// and then, where it is 2, 4 for that size; where it is 0, for each rank in order, 1 byte of
// flags: 1 the rank is trusted, 2, 4, 8 and 16 it holds blocks on the device, on the host, on
// disk, shared; for each tier so flagged, 4 for the number of blocks beyond the faster
// tiers, above 0 and together at most the hashes.
//
// A record (POST /index/v1/record) is the names and the block size of a find, 8 for the
// worker's id, 4 for its rank, 1 that is 1 where the hashes are those of the prompt's tokens
// and 0 where they are of its text, 4 for the number of hashes, at most 65,536, and 8 for each.
// The answer has as many items as the message had records, each 1 byte: 0 recorded, 1 the
// primary has no such partition, 2 its blocks have another size, 3 it has no such rank.
//
// # Goroutines
//
// Client.Run starts one and is one; there are no others. batcher.mu and records.mu are
// taken alone.
//
//	c, err := remote.New(remote.DefaultConfig(), transport, log, nil)
//	go c.Run(ctx)
//	index, err := c.Open(key, blockSize)
//	index.Find(blocks, workers, overlaps)
package remote
