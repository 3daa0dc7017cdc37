// Package guest is the part of a Go plugin that is the same for every kind: the
// memory that the host asks for, the config, the frame, the last error, logging
// and tidying up. It exports rp_abi_v1, rp_alloc, rp_configure, rp_bind,
// rp_last_error and rp_idle. A package per kind (scorer) registers with it and
// exports the kind's own function; plugin authors use only that package.
//
// A module is one plugin and one goroutine: the host makes one call at a time,
// so nothing here is guarded.
package guest
