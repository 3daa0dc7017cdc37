// Package stream decides what to do with the numbered messages of one publisher: apply, buffer, drop, ask for a replay,
// or treat the engine as restarted.
//
// It is a state machine without sockets, goroutines or a clock: its owner reports what happened (a message, a
// connection, an answer, the time) and it calls the owner's Port. A Stream is owned by one goroutine.
//
// Rules it keeps:
//
//   - Messages are applied in order of their numbers. While an answer is awaited live messages wait; afterwards those
//     not above the last applied number are skipped.
//   - A number that falls to 0 or 1 with another payload, or after a reconnect any number not above the last applied,
//     means that the engine restarted: the state is cleared and replayed. After a reconnect the last applied number is
//     asked for and its payload compared. A single older number is a late duplicate.
//   - A stream can go on from the Position of another one: its first connection is a reconnect, and until the publisher has
//     proven to be the one from before it is not trusted.
//   - The replay of a restart that soon follows another waits for a growing delay, and after some tries in a row an answer
//     that contradicts the live messages stands. Meanwhile and after that the stream is degraded.
//   - A gap is replayed from the first missing number. When an answer is incomplete the stream goes on without what is
//     missing, and asks again after a growing delay. Such a later answer is only used once it reaches the last applied
//     number: since events set and reset membership, applying that whole stretch once more in order gives the true state.
//   - What is missing for good makes the stream degraded until the engine clears its cache or restarts.
package stream
