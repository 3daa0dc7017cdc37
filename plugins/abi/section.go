package abi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ManifestSection is the name of the custom section that holds the manifest.
const ManifestSection = "routerd.manifest"

// ErrTwoManifests refuses a module with more than one manifest section.
var ErrTwoManifests = errors.New("module has two sections " + ManifestSection + "; allowed: one")

// errTruncated is what a section or number that runs past the end gets.
var errTruncated = errors.New("module ends inside a section")

var wasmHeader = []byte{0, 'a', 's', 'm', 1, 0, 0, 0}

// AppendManifest returns a copy of the module with the manifest as its custom
// section routerd.manifest, at the end, in place of one that is there already.
// It checks the module's header, the framing of its sections and the manifest's
// size, not the manifest's content (ParseManifest does). A module with two
// manifests is ErrTwoManifests.
func AppendManifest(wasm, manifest []byte) ([]byte, error) {
	if len(manifest) > MaxManifestBytes {
		return nil, fmt.Errorf("append manifest of %d bytes: allowed: up to %d bytes", len(manifest), MaxManifestBytes)
	}
	if !bytes.HasPrefix(wasm, wasmHeader) {
		return nil, fmt.Errorf("append manifest: module starts with % x; allowed: the header of a Wasm 1 core module, % x",
			wasm[:min(len(wasm), len(wasmHeader))], wasmHeader)
	}
	out := make([]byte, 0, len(wasm)+len(manifest)+len(ManifestSection)+16)
	out = append(out, wasmHeader...)
	found := false
	for at := len(wasmHeader); at < len(wasm); {
		end, body, err := section(wasm, at)
		if err != nil {
			return nil, fmt.Errorf("append manifest: section at byte %d: %w", at, err)
		}
		isManifest, err := holdsManifest(wasm[at], body)
		switch {
		case err != nil:
			return nil, fmt.Errorf("append manifest: section at byte %d: %w", at, err)
		case isManifest && found:
			return nil, fmt.Errorf("append manifest: %w", ErrTwoManifests)
		case isManifest:
			found = true
		default:
			out = append(out, wasm[at:end]...)
		}
		at = end
	}
	name := binary.AppendUvarint(nil, uint64(len(ManifestSection)))
	name = append(name, ManifestSection...)
	out = append(out, 0)
	out = binary.AppendUvarint(out, uint64(len(name)+len(manifest)))
	out = append(out, name...)
	return append(out, manifest...), nil
}

// section frames the section at wasm[at]: where it ends, and its body.
func section(wasm []byte, at int) (end int, body []byte, err error) {
	size, n, err := leb32(wasm[at+1:])
	if err != nil {
		return 0, nil, err
	}
	start := at + 1 + n
	if uint64(size) > uint64(len(wasm)-start) {
		return 0, nil, errTruncated
	}
	end = start + int(size)
	return end, wasm[start:end], nil
}

func holdsManifest(id byte, body []byte) (bool, error) {
	if id != 0 {
		return false, nil
	}
	size, n, err := leb32(body)
	if err != nil {
		return false, err
	}
	if uint64(size) > uint64(len(body)-n) {
		return false, errTruncated
	}
	return string(body[n:n+int(size)]) == ManifestSection, nil
}

// leb32 reads an unsigned LEB128 number of at most 32 bits.
func leb32(b []byte) (v uint32, n int, err error) {
	for n = 0; n < 5; n++ {
		if n == len(b) {
			return 0, 0, errTruncated
		}
		if n == 4 && b[n] > 0x0f {
			break
		}
		v |= uint32(b[n]&0x7f) << (7 * n)
		if b[n] < 0x80 {
			return v, n + 1, nil
		}
	}
	return 0, 0, errors.New("number of more than 32 bits")
}
