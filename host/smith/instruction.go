package smith

import (
	"fmt"
	"strings"
)

// Value types in their binary form.
const (
	I32       byte = 0x7f
	I64       byte = 0x7e
	F32       byte = 0x7d
	F64       byte = 0x7c
	V128      byte = 0x7b
	FuncRef   byte = 0x70
	ExternRef byte = 0x6f
)

// Shape is what follows the opcode of an Instruction.
type Shape byte

// The shapes.
const (
	Plain      Shape = iota // nothing
	Memory                  // alignment exponent and offset
	Lane                    // a lane
	MemoryLane              // alignment exponent, offset and a lane
	Shuffle                 // 16 lanes, each of 32
	Const                   // 16 bytes
)

// Instruction is one instruction that takes all it needs from the operand stack and its immediates: arithmetic,
// comparison, conversion, loads and stores. Control, variables, references and bulk operations are none.
type Instruction struct {
	Name    string
	Code    []byte // the opcode without immediates, in its shortest form
	Params  []byte // value types, the topmost last
	Results []byte
	Shape   Shape
	Align   byte // the natural alignment as an exponent, of Memory and MemoryLane
	Lanes   byte // the number of lanes, of Lane and MemoryLane
	// FloatBits is the width of the float results whose NaN bits the engine chooses, 0 where it chooses none.
	FloatBits int
	// Traps says that some operands trap, apart from addresses.
	Traps bool
}

// Immediates are the bytes after the opcode with the natural alignment, the offset and the lane given; a constant and
// a shuffle are filled with the lane.
func (in *Instruction) Immediates(offset int, lane byte) []byte {
	switch in.Shape {
	case Memory:
		return append([]byte{in.Align}, uleb(offset)...)
	case MemoryLane:
		return append(append([]byte{in.Align}, uleb(offset)...), lane)
	case Lane:
		return []byte{lane}
	case Shuffle, Const:
		return []byte(strings.Repeat(string(rune(lane&0x1f)), 16))
	}
	return nil
}

// Instructions lists every instruction of the kind, in order of opcodes. The caller owns the list.
func Instructions() []Instruction {
	var all []Instruction
	for line := range strings.Lines(instructionTable) {
		if fields := strings.Fields(line); len(fields) > 0 {
			all = append(all, instructionsOf(fields)...)
		}
	}
	return all
}

// instructionsOf reads one line of the table: space, first opcode, signature, prefix of the names, names.
func instructionsOf(fields []string) []Instruction {
	var space, first int
	if _, err := fmt.Sscanf(fields[0], "%x:%d", &space, &first); err != nil {
		panic(fmt.Sprintf("instruction table: %q: %v", fields, err))
	}
	sig, bits := strings.TrimRight(fields[1], "!?"), 0
	if strings.Contains(fields[1], "!") {
		bits = 64
		if f32Results(fields[2], sig) {
			bits = 32
		}
	}
	params, results, _ := strings.Cut(sig, ">")
	var all []Instruction
	for i, name := range fields[3:] {
		if name == "_" {
			continue
		}
		in := Instruction{
			Name: fields[2] + "." + name, Params: kinds(params), Results: kinds(results),
			FloatBits: bits, Traps: strings.Contains(fields[1], "?"),
		}
		in.Code = uleb(first + i)
		if space == 0 {
			in.Code = []byte{byte(first + i)}
		} else {
			in.Code = append([]byte{byte(space)}, in.Code...)
		}
		in.shape(space, first+i)
		all = append(all, in)
	}
	return all
}

func f32Results(prefix, sig string) bool {
	return strings.HasPrefix(prefix, "f32") || strings.HasSuffix(sig, ">f")
}

func kinds(letters string) []byte {
	out := make([]byte, len(letters))
	for i, c := range letters {
		out[i] = map[rune]byte{'i': I32, 'I': I64, 'f': F32, 'F': F64, 'v': V128}[c]
	}
	return out
}

// shape fills in what the opcode says of its immediates.
func (in *Instruction) shape(space, op int) {
	switch {
	case space == 0 && op >= 0x28 && op <= 0x3e:
		in.Shape = Memory
		in.Align = []byte{2, 3, 2, 3, 0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 2, 3, 2, 3, 0, 1, 0, 1, 2}[op-0x28]
	case space != 0xfd:
	case op <= 11 || op == 92 || op == 93:
		in.Shape = Memory
		in.Align = map[int]byte{0: 4, 7: 0, 8: 1, 9: 2, 11: 4, 92: 2}[op]
		if op >= 1 && op <= 6 || op == 10 || op == 93 {
			in.Align = 3
		}
	case op == 12:
		in.Shape = Const
	case op == 13:
		in.Shape = Shuffle
	case op >= 21 && op <= 34:
		in.Shape = Lane
		in.Lanes = []byte{16, 16, 16, 8, 8, 8, 4, 4, 2, 2, 4, 4, 2, 2}[op-21]
	case op >= 84 && op <= 91:
		in.Shape, in.Align = MemoryLane, byte(op%4)
		in.Lanes = 16 >> in.Align
	}
}

// instructionTable: opcode space and number of the first name, operands > results ("!" NaN bits are the engine's
// choice, "?" can trap), prefix of the names, names of consecutive opcodes ("_" there is none).
const instructionTable = `
00:40 i>i i32 load
00:41 i>I i64 load
00:42 i>f f32 load
00:43 i>F f64 load
00:44 i>i i32 load8_s load8_u load16_s load16_u
00:48 i>I i64 load8_s load8_u load16_s load16_u load32_s load32_u
00:54 ii> i32 store
00:55 iI> i64 store
00:56 if> f32 store
00:57 iF> f64 store
00:58 ii> i32 store8 store16
00:60 iI> i64 store8 store16 store32
00:69 i>i i32 eqz
00:70 ii>i i32 eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u
00:80 I>i i64 eqz
00:81 II>i i64 eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u
00:91 ff>i f32 eq ne lt gt le ge
00:97 FF>i f64 eq ne lt gt le ge
00:103 i>i i32 clz ctz popcnt
00:106 ii>i i32 add sub mul
00:109 ii>i? i32 div_s div_u rem_s rem_u
00:113 ii>i i32 and or xor shl shr_s shr_u rotl rotr
00:121 I>I i64 clz ctz popcnt
00:124 II>I i64 add sub mul
00:127 II>I? i64 div_s div_u rem_s rem_u
00:131 II>I i64 and or xor shl shr_s shr_u rotl rotr
00:139 f>f f32 abs neg
00:141 f>f! f32 ceil floor trunc nearest sqrt
00:146 ff>f! f32 add sub mul div min max
00:152 ff>f f32 copysign
00:153 F>F f64 abs neg
00:155 F>F! f64 ceil floor trunc nearest sqrt
00:160 FF>F! f64 add sub mul div min max
00:166 FF>F f64 copysign
00:167 I>i i32 wrap_i64
00:168 f>i? i32 trunc_f32_s trunc_f32_u
00:170 F>i? i32 trunc_f64_s trunc_f64_u
00:172 i>I i64 extend_i32_s extend_i32_u
00:174 f>I? i64 trunc_f32_s trunc_f32_u
00:176 F>I? i64 trunc_f64_s trunc_f64_u
00:178 i>f f32 convert_i32_s convert_i32_u
00:180 I>f f32 convert_i64_s convert_i64_u
00:182 F>f! f32 demote_f64
00:183 i>F f64 convert_i32_s convert_i32_u
00:185 I>F f64 convert_i64_s convert_i64_u
00:187 f>F! f64 promote_f32
00:188 f>i i32 reinterpret_f32
00:189 F>I i64 reinterpret_f64
00:190 i>f f32 reinterpret_i32
00:191 I>F f64 reinterpret_i64
00:192 i>i i32 extend8_s extend16_s
00:194 I>I i64 extend8_s extend16_s extend32_s
fc:0 f>i i32 trunc_sat_f32_s trunc_sat_f32_u
fc:2 F>i i32 trunc_sat_f64_s trunc_sat_f64_u
fc:4 f>I i64 trunc_sat_f32_s trunc_sat_f32_u
fc:6 F>I i64 trunc_sat_f64_s trunc_sat_f64_u
fd:0 i>v v128 load load8x8_s load8x8_u load16x4_s load16x4_u load32x2_s load32x2_u
fd:7 i>v v128 load8_splat load16_splat load32_splat load64_splat
fd:11 iv> v128 store
fd:12 >v v128 const
fd:13 vv>v i8x16 shuffle swizzle
fd:15 i>v i8x16 splat
fd:16 i>v i16x8 splat
fd:17 i>v i32x4 splat
fd:18 I>v i64x2 splat
fd:19 f>v f32x4 splat
fd:20 F>v f64x2 splat
fd:21 v>i i8x16 extract_lane_s extract_lane_u
fd:23 vi>v i8x16 replace_lane
fd:24 v>i i16x8 extract_lane_s extract_lane_u
fd:26 vi>v i16x8 replace_lane
fd:27 v>i i32x4 extract_lane
fd:28 vi>v i32x4 replace_lane
fd:29 v>I i64x2 extract_lane
fd:30 vI>v i64x2 replace_lane
fd:31 v>f f32x4 extract_lane
fd:32 vf>v f32x4 replace_lane
fd:33 v>F f64x2 extract_lane
fd:34 vF>v f64x2 replace_lane
fd:35 vv>v i8x16 eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u
fd:45 vv>v i16x8 eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u
fd:55 vv>v i32x4 eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u
fd:65 vv>v f32x4 eq ne lt gt le ge
fd:71 vv>v f64x2 eq ne lt gt le ge
fd:77 v>v v128 not
fd:78 vv>v v128 and andnot or xor
fd:82 vvv>v v128 bitselect
fd:83 v>i v128 any_true
fd:84 iv>v v128 load8_lane load16_lane load32_lane load64_lane
fd:88 iv> v128 store8_lane store16_lane store32_lane store64_lane
fd:92 i>v v128 load32_zero load64_zero
fd:94 v>v! f32x4 demote_f64x2_zero
fd:95 v>v! f64x2 promote_low_f32x4
fd:96 v>v i8x16 abs neg popcnt
fd:99 v>i i8x16 all_true bitmask
fd:101 vv>v i8x16 narrow_i16x8_s narrow_i16x8_u
fd:103 v>v! f32x4 ceil floor trunc nearest
fd:107 vi>v i8x16 shl shr_s shr_u
fd:110 vv>v i8x16 add add_sat_s add_sat_u sub sub_sat_s sub_sat_u
fd:116 v>v! f64x2 ceil floor
fd:118 vv>v i8x16 min_s min_u max_s max_u
fd:122 v>v! f64x2 trunc
fd:123 vv>v i8x16 avgr_u
fd:124 v>v i16x8 extadd_pairwise_i8x16_s extadd_pairwise_i8x16_u
fd:126 v>v i32x4 extadd_pairwise_i16x8_s extadd_pairwise_i16x8_u
fd:128 v>v i16x8 abs neg
fd:130 vv>v i16x8 q15mulr_sat_s
fd:131 v>i i16x8 all_true bitmask
fd:133 vv>v i16x8 narrow_i32x4_s narrow_i32x4_u
fd:135 v>v i16x8 extend_low_i8x16_s extend_high_i8x16_s extend_low_i8x16_u extend_high_i8x16_u
fd:139 vi>v i16x8 shl shr_s shr_u
fd:142 vv>v i16x8 add add_sat_s add_sat_u sub sub_sat_s sub_sat_u
fd:148 v>v! f64x2 nearest
fd:149 vv>v i16x8 mul min_s min_u max_s max_u _ avgr_u
fd:156 vv>v i16x8 extmul_low_i8x16_s extmul_high_i8x16_s extmul_low_i8x16_u extmul_high_i8x16_u
fd:160 v>v i32x4 abs neg
fd:163 v>i i32x4 all_true bitmask
fd:167 v>v i32x4 extend_low_i16x8_s extend_high_i16x8_s extend_low_i16x8_u extend_high_i16x8_u
fd:171 vi>v i32x4 shl shr_s shr_u
fd:174 vv>v i32x4 add _ _ sub _ _ _ mul min_s min_u max_s max_u dot_i16x8_s
fd:188 vv>v i32x4 extmul_low_i16x8_s extmul_high_i16x8_s extmul_low_i16x8_u extmul_high_i16x8_u
fd:192 v>v i64x2 abs neg
fd:195 v>i i64x2 all_true bitmask
fd:199 v>v i64x2 extend_low_i32x4_s extend_high_i32x4_s extend_low_i32x4_u extend_high_i32x4_u
fd:203 vi>v i64x2 shl shr_s shr_u
fd:206 vv>v i64x2 add _ _ sub _ _ _ mul eq ne lt_s gt_s le_s ge_s
fd:220 vv>v i64x2 extmul_low_i32x4_s extmul_high_i32x4_s extmul_low_i32x4_u extmul_high_i32x4_u
fd:224 v>v f32x4 abs neg
fd:227 v>v! f32x4 sqrt
fd:228 vv>v! f32x4 add sub mul div min max
fd:234 vv>v f32x4 pmin pmax
fd:236 v>v f64x2 abs neg
fd:239 v>v! f64x2 sqrt
fd:240 vv>v! f64x2 add sub mul div min max
fd:246 vv>v f64x2 pmin pmax
fd:248 v>v i32x4 trunc_sat_f32x4_s trunc_sat_f32x4_u
fd:250 v>v f32x4 convert_i32x4_s convert_i32x4_u
fd:252 v>v i32x4 trunc_sat_f64x2_s_zero trunc_sat_f64x2_u_zero
fd:254 v>v f64x2 convert_low_i32x4_s convert_low_i32x4_u
`
