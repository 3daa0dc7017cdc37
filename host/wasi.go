package host

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/routerd/routerd/plugins/abi"
)

// Our own WASI preview 1: it gives no authority and is the same at each call.
// The functions that do something are here; wasiErrnos has what the rest
// return.

// WASI error numbers that are returned.
const (
	wasiOK     = 0
	wasiEBADF  = 8
	wasiEFAULT = 21
	wasiEINVAL = 28
	wasiENOSYS = 52
)

// clockStep is how far the virtual clock moves at each read, in ns.
const clockStep = 1000

// wasiFunctions are the ones that work.
func wasiFunctions() map[string]hostFunc {
	return map[string]hostFunc{
		"args_get":            wasiNothing,
		"args_sizes_get":      wasiSizesZero,
		"environ_get":         wasiNothing,
		"environ_sizes_get":   wasiSizesZero,
		"clock_res_get":       wasiClockRes,
		"clock_time_get":      wasiClockTime,
		"fd_fdstat_get":       wasiFdstat,
		"fd_fdstat_set_flags": wasiFdstatSet,
		"fd_write":            wasiFdWrite,
		"poll_oneoff":         wasiPoll,
		"proc_exit":           wasiExit,
		"random_get":          wasiRandom,
		"sched_yield":         wasiNothing,
	}
}

// wasiRefusal is what a function that gives nothing returns.
func wasiRefusal(name string) uint64 {
	switch name {
	case "fd_fdstat_set_rights", "proc_raise":
		return wasiENOSYS
	}
	return wasiEBADF
}

func wasiNothing(in *instance, stack []uint64) {
	in.charge(0, 0)
	stack[0] = wasiOK
}

func wasiSizesZero(in *instance, stack []uint64) {
	in.charge(8, 0)
	count, size := in.block(stack[0], 4), in.block(stack[1], 4)
	clear(count)
	clear(size)
	stack[0] = wasiOK
}

func wasiClockRes(in *instance, stack []uint64) {
	in.charge(8, 0)
	binary.LittleEndian.PutUint64(in.block(stack[1], 8), clockStep)
	stack[0] = wasiOK
}

func wasiClockTime(in *instance, stack []uint64) {
	in.charge(8, 0)
	binary.LittleEndian.PutUint64(in.block(stack[2], 8), in.clock)
	in.advance(clockStep)
	stack[0] = wasiOK
}

// wasiFdstat describes the standard streams as character devices that may be
// written.
func wasiFdstat(in *instance, stack []uint64) {
	in.charge(24, 0)
	if uint32(stack[0]) > 2 {
		stack[0] = wasiEBADF
		return
	}
	b := in.block(stack[1], 24)
	clear(b)
	b[0] = 2                                         // character device
	binary.LittleEndian.PutUint64(b[8:], uint64(64)) // right fd_write
	stack[0] = wasiOK
}

func wasiFdstatSet(in *instance, stack []uint64) {
	in.charge(0, 0)
	if uint32(stack[0]) > 2 {
		stack[0] = wasiEBADF
		return
	}
	stack[0] = wasiOK
}

// wasiFdWrite logs what is written to 1 and 2, at most 4 KiB of at most 16
// vectors a call. Each line that may be logged is an element more.
func wasiFdWrite(in *instance, stack []uint64) {
	fd, at, vectors := uint32(stack[0]), stack[1], uint32(stack[2])
	if fd != 1 && fd != 2 {
		in.charge(0, 0)
		stack[0] = wasiEBADF
		return
	}
	if vectors > abi.MaxWriteVectors {
		in.charge(0, 0)
		stack[0] = wasiEINVAL
		return
	}
	in.charge(8*vectors+abi.MaxWriteBytes, vectors)
	table := in.block(at, 8*uint64(vectors))
	text := in.text[:0]
	for i := range vectors {
		ptr := binary.LittleEndian.Uint32(table[8*i:])
		n := binary.LittleEndian.Uint32(table[8*i+4:])
		b := in.block(uint64(ptr), uint64(n))
		text = append(text, b[:min(len(b), abi.MaxWriteBytes-len(text))]...)
	}
	in.text = text[:0]
	in.chargeMore(uint32(min(bytes.Count(text, newline)+1, maxPrinted)))
	binary.LittleEndian.PutUint32(in.block(stack[3], 4), uint32(len(text)))
	in.printed(fd, text)
	stack[0] = wasiOK
}

// wasiPoll answers every subscription at once: a clock moves the virtual clock
// on to the earliest time asked for, a file is a bad descriptor.
func wasiPoll(in *instance, stack []uint64) {
	n := uint32(stack[2])
	if n == 0 || n > abi.MaxPollSubscriptions {
		in.charge(0, 0)
		stack[0] = wasiEINVAL
		return
	}
	in.charge(80*n, n)
	subscriptions, events := in.block(stack[0], 48*uint64(n)), in.block(stack[1], 32*uint64(n))
	count := in.block(stack[3], 4)
	wait, clocks := uint64(math.MaxUint64), false
	var out [32 * abi.MaxPollSubscriptions]byte
	for i := range n {
		sub, ev := subscriptions[48*i:48*i+48], out[32*i:32*i+32]
		copy(ev[:8], sub[:8]) // user data
		ev[10] = sub[8]       // type
		if sub[8] != 0 {
			binary.LittleEndian.PutUint16(ev[8:], wasiEBADF)
			continue
		}
		until := binary.LittleEndian.Uint64(sub[24:])
		if sub[40]&1 != 0 { // absolute
			until -= min(until, in.clock)
		}
		wait, clocks = min(wait, until), true
	}
	copy(events, out[:32*n])
	binary.LittleEndian.PutUint32(count, n)
	if clocks {
		in.advance(wait)
	}
	stack[0] = wasiOK
}

// wasiExit is a trap whatever the code.
func wasiExit(in *instance, stack []uint64) {
	in.charge(0, 0)
	panic(&guestExit{code: uint32(stack[0])})
}

// wasiRandom gives at most 256 bytes of a sequence that restarts at each call.
func wasiRandom(in *instance, stack []uint64) {
	n := uint32(stack[1])
	if n > abi.MaxRandomBytes {
		in.charge(0, 0)
		stack[0] = wasiEINVAL
		return
	}
	in.charge(n, 0)
	b := in.block(stack[0], uint64(n))
	for i := range b {
		if i%8 == 0 {
			in.random++
		}
		b[i] = byte(splitMix64(in.random) >> (8 * (i % 8)))
	}
	stack[0] = wasiOK
}

// advance moves the virtual clock; it stops at its end.
func (in *instance) advance(ns uint64) {
	in.clock += min(ns, math.MaxInt64-in.clock)
}

// splitMix64 is the i-th value of the SplitMix64 sequence with seed 0.
func splitMix64(i uint64) uint64 {
	z := i * 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}
