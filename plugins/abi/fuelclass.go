package abi

import "math"

// FuelUnit says by what an operation with a length is charged.
type FuelUnit string

// The units.
const (
	FuelUnitNone     FuelUnit = ""
	FuelUnitPages    FuelUnit = "pages"
	FuelUnitBytes    FuelUnit = "bytes"
	FuelUnitElements FuelUnit = "elements"
)

// FuelClass is a group of instructions with one price.
type FuelClass struct {
	Name    string
	Opcodes []OpcodeRange
	// Fuel is the price of one execution, without what its length costs.
	Fuel uint64
	// Unit is by what the topmost operand, read as an unsigned number, is charged more.
	Unit FuelUnit
	// Refused says that a function body may not hold the instruction.
	Refused bool
}

// OpcodeRange is a run of opcodes, both ends included: after Prefix, where that is not 0.
type OpcodeRange struct {
	Prefix      byte
	First, Last uint16
}

// Classes are the instructions that a module may hold, each in one class; every other opcode is refused. The caller
// owns the list.
func (s FuelSchedule) Classes() []FuelClass {
	memory := s.Instruction + s.MemoryAccess
	return []FuelClass{
		{Name: "else, end", Opcodes: []OpcodeRange{{0, 0x05, 0x05}, {0, 0x0b, 0x0b}}},
		{Name: "control, calls, variables, constants, arithmetic, references, SIMD without memory", Fuel: s.Instruction, Opcodes: []OpcodeRange{
			{0, 0x00, 0x04},
			{0, 0x0c, 0x11},
			{0, 0x1a, 0x1c},
			{0, 0x20, 0x26},
			{0, 0x3f, 0x3f},
			{0, 0x41, 0xc4},
			{0, 0xd0, 0xd1},
			{0xfc, 0, 7},
			{0xfc, 9, 9},
			{0xfc, 13, 13},
			{0xfc, 16, 16},
			{0xfd, 12, 83},
			{0xfd, 94, 153},
			{0xfd, 155, 161},
			{0xfd, 163, 164},
			{0xfd, 167, 174},
			{0xfd, 177, 177},
			{0xfd, 181, 186},
			{0xfd, 188, 193},
			{0xfd, 195, 196},
			{0xfd, 199, 206},
			{0xfd, 209, 209},
			{0xfd, 213, 225},
			{0xfd, 227, 237},
			{0xfd, 239, 255},
		}},
		{Name: "load, store", Fuel: memory, Opcodes: []OpcodeRange{
			{0, 0x28, 0x3e}, {0xfd, 0, 11}, {0xfd, 84, 93},
		}},
		{Name: "memory.grow", Fuel: s.Instruction, Unit: FuelUnitPages, Opcodes: []OpcodeRange{{0, 0x40, 0x40}}},
		{Name: "memory.init, memory.copy, memory.fill", Fuel: s.Instruction, Unit: FuelUnitBytes, Opcodes: []OpcodeRange{
			{0xfc, 8, 8}, {0xfc, 10, 11},
		}},
		{Name: "table.init, table.copy, table.grow, table.fill", Fuel: s.Instruction, Unit: FuelUnitElements, Opcodes: []OpcodeRange{
			{0xfc, 12, 12}, {0xfc, 14, 15}, {0xfc, 17, 17},
		}},
		{Name: "ref.func", Refused: true, Opcodes: []OpcodeRange{{0, 0xd2, 0xd2}}},
	}
}

// Endless is the price of an operation that ends the call whatever it was granted.
const Endless uint64 = math.MaxUint64

// LengthPrice is what an operation of a length costs over Fuel of its class. Divisions round down. Endless says that
// it ends the call. most is the memory's maximum in pages: growing by more cannot work and costs one page.
func (s FuelSchedule) LengthPrice(unit FuelUnit, length, most uint32) uint64 {
	n := uint64(length)
	switch unit {
	case FuelUnitPages:
		if length > most {
			n = 1
		}
		return n * s.GrowPerPage
	case FuelUnitBytes:
		if n > s.BulkMaxBytes {
			return Endless
		}
		return n / s.BulkBytesDivisor
	case FuelUnitElements:
		if n > s.BulkMaxElements {
			return Endless
		}
		return n * s.TablePerElement
	}
	return 0
}
