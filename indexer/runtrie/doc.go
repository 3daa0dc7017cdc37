// Package runtrie keeps who holds which prefix: a trie of block hashes whose nodes are
// runs of up to Run blocks, with for each node how far each holder has it.
//
// A run may have branches inside it, so that nothing is ever split or merged, and a
// Ref stays what it is for as long as somebody holds it. All bulk is in pages without
// pointers, which the garbage collector does not look into.
//
//	nodes      64-byte headers in pages; ids are used again
//	areas      the hashes of the runs, in sizes 1, 2, 4, … Run
//	children   one open-addressing table for all branches, mixed with a secret, since
//	           users choose the tokens and so the hashes
//	cover      per node, how many of its leading blocks each holder has: up to four
//	           holders inline, more in a crowd: a set for the most frequent number and
//	           a list for the others
//	holes      of holders that do not have a prefix of a node, the positions they have;
//	           read by writers alone
//
// Areas move out of pages that are mostly empty (Compact). With a clock that goes on (Tick), nodes know how long they
// were neither stored nor found, and Cold finds the oldest.
//
// Invariants:
//
//   - One path has one Ref. A hash behind a position is in the run, or the first of
//     exactly one child there, never both.
//   - A run grows at its end or loses a tail that nobody holds and that has no child;
//     a Ref means the same for as long as it is held, whatever area the run is in.
//   - A node exists while somebody holds a position of it or it has children, which
//     are attached at offsets up to its length.
//   - The cover of a holder is not 0 exactly while it holds the node's first block; it
//     has an entry of holes exactly while its positions are no prefix of the node.
//
// Locks: writers call under Lock. Find takes no lock: it pins an epoch, and what a
// writer takes out is used again only when nobody is pinned who could have seen it. A
// node's version is odd while more than one word of its cover changes or its run gets
// shorter; a reader that finds it changed looks at the node again. So a holder that
// has the first k blocks all through a Find is found with at least k, and a block that
// it had at no moment of it is never counted.
package runtrie
