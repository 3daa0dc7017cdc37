package host

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"

	"github.com/routerd/routerd/plugins/abi"
)

// What guests say: their errors, their log lines, the traces of their traps.

// utf16 reads an AssemblyScript string, cut to a line.
func (in *instance) utf16(ptr uint32) string {
	if ptr < 4 {
		return ""
	}
	n := binary.LittleEndian.Uint32(in.block(uint64(ptr-4), 4))
	b := in.block(uint64(ptr), uint64(min(n, 2*abi.MaxLogBytes)))
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return clip(string(utf16.Decode(units)), abi.MaxLogBytes)
}

// guestError describes a code that an export returned, with the guest's own
// words where it has some.
func (in *instance) guestError(export string, code abi.GuestCode) string {
	text := fmt.Sprintf("%s returned %d (%s)", export, int32(code), code)
	if code >= 0 || in.lastEr == nil {
		return text
	}
	in.begin(abi.FuelLastError, in.limit)
	in.busy = stackOf(in.lastEr)
	var stack [1]uint64
	if err := in.lastEr.CallWithStack(in.carrier, stack[:]); err != nil {
		return text + "; rp_last_error: " + in.trapText(err)
	}
	at, n := stack[0]>>32, stack[0]&0xffffffff
	if n > 1024 || at+n > uint64(in.mem.Size()) {
		return text + "; rp_last_error gave a range outside the memory or over 1 KiB"
	}
	b, _ := in.mem.Read(uint32(at), uint32(n))
	return text + ": " + clip(string(b), 300)
}

// trapText is an engine's error for people: its first line and the guest's
// function names.
func (in *instance) trapText(err error) string {
	head, trace, _ := strings.Cut(err.Error(), "\nwasm stack trace:")
	head = strings.TrimPrefix(strings.TrimSuffix(head, " (recovered by wazero)"), "wasm error: ")
	frames := make([]string, 0, 3)
	for line := range strings.SplitSeq(trace, "\n") {
		name, _, ok := strings.Cut(strings.TrimSpace(line), "(")
		if !ok || len(frames) == cap(frames) {
			continue
		}
		var index uint32
		if n, serr := fmt.Sscanf(name, ".$%d", &index); serr == nil && n == 1 {
			if known := in.module.names.Rewritten(index); known != "" {
				name = known
			}
		}
		frames = append(frames, name)
	}
	if len(frames) > 0 {
		head += " in " + strings.Join(frames, " < ")
	}
	return clip(head, 400)
}

// say holds a line of the guest's at its level: 0 debug, 1 info, 2 warning,
// anything else error.
func (in *instance) say(level int32, text []byte) {
	if !in.quiet {
		in.effects().line(level, text)
	}
}

// maxPrinted is how many lines of one fd_write are held; the rest count as
// dropped.
const maxPrinted = 8

var newline = []byte("\n")

// printed holds what a guest wrote to standard output or error. A line may come
// in pieces: it ends with a newline or with the call. Empty lines are none.
func (in *instance) printed(fd uint32, text []byte) {
	if in.quiet || len(text) == 0 {
		return
	}
	e := in.effects()
	begun := &e.begun[fd-1]
	for held := 0; len(text) > 0; {
		line, rest, ends := bytes.Cut(text, newline)
		if held == maxPrinted {
			*begun = (*begun)[:0]
			if text = bytes.Trim(text, "\n"); len(text) > 0 {
				e.dropped += bytes.Count(text, newline) + 1
			}
			return
		}
		*begun = append(*begun, line[:min(len(line), abi.MaxLogBytes-len(*begun))]...)
		if ends && e.end(begun) {
			held++
		}
		text = rest
	}
}
