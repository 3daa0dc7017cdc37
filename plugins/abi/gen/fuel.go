package main

import (
	"fmt"
	"strings"

	"github.com/routerd/routerd/plugins/abi"
)

// fuel writes the schedule: what each opcode costs, and what places in the code cost.
func fuel(d *doc) {
	s := abi.Fuel1()
	d.head("Fuel schedule " + code(s.Name))
	d.line("Charged is what is executed, before it is executed. Opcodes that are in no row are refused. Each row was measured by running every one of its instructions (`host/meter/testdata/fuel1.golden`).\n")
	d.table("instruction", "opcodes", "fuel")
	for _, c := range s.Classes() {
		d.row(c.Name, opcodes(c.Opcodes), price(s, c))
	}
	d.line("\nA length is the topmost operand, read as an unsigned 32-bit number and extended to 64 bits. Divisions round down. The charge is checked before the operation begins; one over its limit ends the call as `fuel` and does nothing. memory.grow by more pages than the memory's maximum, which can only answer −1, is charged as one page.\n")
	d.table("place", "fuel, more")
	d.row("function entry", fmt.Sprintf("%d + body bytes / %d; the body with its local declarations, as the module holds it", s.EntryBase, s.EntryBodyDivisor))
	d.row("code after a loop head, if, else or br_if, and after an end where paths join: that of an if, and of a block that a branch names", fmt.Sprintf("(parameters + locals) / %d each time", s.LocalsDivisor))
	d.row("loop head", "at least 1 a round, its instructions included")
	d.row("code after br, br_table, return or unreachable", "none: it is left out")
	d.line("\nGranted in slices of %d. A call gets min(cap, fuel_base + rows × fuel_per_row); defaults %d, %d and a cap of %d. Set-up gets %d, `rp_last_error` %d, `rp_idle` %d.",
		abi.FuelSlice, abi.DefaultFuelBase, abi.DefaultFuelPerRow, abi.DefaultFuelCap, abi.FuelSetUp, abi.FuelLastError, abi.FuelIdle)
}

func price(s abi.FuelSchedule, c abi.FuelClass) string {
	switch c.Unit {
	case abi.FuelUnitPages:
		return fmt.Sprintf("%d + %d per page", c.Fuel, s.GrowPerPage)
	case abi.FuelUnitBytes:
		return fmt.Sprintf("%d + bytes / %d; over %d bytes ends the call", c.Fuel, s.BulkBytesDivisor, s.BulkMaxBytes)
	case abi.FuelUnitElements:
		return fmt.Sprintf("%d + %d per element; over %d elements ends the call", c.Fuel, s.TablePerElement, s.BulkMaxElements)
	}
	if c.Refused {
		return "refused in function bodies; element segments and global initialisers may hold it"
	}
	return fmt.Sprint(c.Fuel)
}

func opcodes(ranges []abi.OpcodeRange) string {
	var out []string
	for _, r := range ranges {
		one := func(op uint16) string {
			if r.Prefix != 0 {
				return fmt.Sprintf("%#x %d", r.Prefix, op)
			}
			return fmt.Sprintf("%#02x", op)
		}
		switch {
		case r.First == r.Last:
			out = append(out, one(r.First))
		case r.Prefix != 0:
			out = append(out, fmt.Sprintf("%s–%d", one(r.First), r.Last))
		default:
			out = append(out, one(r.First)+"–"+one(r.Last))
		}
	}
	return strings.Join(out, ", ")
}
