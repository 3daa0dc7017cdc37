// Package disk is the form in which a router keeps its indexes while it does not run:
// what each event stream stored, with where the stream stands, so that it can go on from
// there.
//
// Everything is little-endian. A varint is that of encoding/binary; text and bytes are
// their length as a varint and what they are; checksums are XXH3-64.
//
//	file       "routerdx", version (4 bytes), the sections one after the other, directory, footer
//	section    the stream's position (bytes; they mean nothing here), how many ranks (varint), each:
//	  rank     its number (varint), what is known beside its blocks, its changes, 0 (1 byte)
//	  beside   flags (1 byte: 1 the main cache group is known, 2 a block of the right size was stored, 4 blocks were
//	           given up to stay below the cap), the main group if known (signed varint), other groups (how many,
//	           signed varints), for each of the four tiers the hashes that cannot be indexed (how many, hashes)
//	  change   head (1 byte: kind 1 stored or 2 removed; 4 it has a parent, 8 a salt, 16 all hashes of its list are
//	           numbers; the tier times 32), the parent (hash), the salt (8 bytes), how many (varint), then of a
//	           store each block's hash and content (8 bytes), of a removal each hash
//	  hash     a number: 0 (1 byte) and 8 bytes, in a list of numbers 8 bytes alone; else its bytes
//	directory  for each section the partition's model and group and the engine's kind (text); worker, rank, block
//	           size, blocks (varints); when it was taken, in nanoseconds of Unix time (8 bytes); where it begins, how
//	           long it is (varints), its checksum (8 bytes)
//	footer     where the directory begins, how long it is, the checksum of both and of the directory (8 bytes
//	           each), "xdretuor"
//
// The version changes with the form, and with what the content of a block is a hash of.
//
// A Writer holds one section's tables at a time, which the index copied. Open believes a
// file only where footer and directory are whole, Read a section only where all of it is:
// nothing of it can be had before that. Nothing here keeps state or starts goroutines.
//
//	w := disk.NewWriter(file)
//	err := w.Add(disk.Entry{…}, position, snapshots)
//	err = w.Close()
package disk
