package abi

// What the host's own WASI does with a function that gives a guest nothing.
const (
	wasiWorks  = "works"
	wasiENOSYS = "returns ENOSYS"
	wasiEBADF  = "returns EBADF"
)

// wasiTable lists WASI preview 1 whole, so that any tool chain's output links.
// All but proc_exit return an errno.
func wasiTable() []Import {
	out := make([]Import, 0, len(wasiFuncs))
	for _, f := range wasiFuncs {
		i := Import{Module: ModuleWASI, Name: f.name, Params: params(f.params), Results: []ValType{I32}, Meaning: f.does}
		if f.name == "proc_exit" {
			i.Results = nil
		}
		out = append(out, i)
	}
	return out
}

var wasiFuncs = [...]struct{ name, params, does string }{
	{"args_get", "ii", wasiWorks + ": no arguments"},
	{"args_sizes_get", "ii", wasiWorks + ": no arguments"},
	{"clock_res_get", "ii", wasiWorks + ": 1 µs"},
	{"clock_time_get", "ili", wasiWorks + ": 0 at each call, 1 µs later at each read"},
	{"environ_get", "ii", wasiWorks + ": no environment"},
	{"environ_sizes_get", "ii", wasiWorks + ": no environment"},
	{"fd_advise", "illi", wasiEBADF},
	{"fd_allocate", "ill", wasiEBADF},
	{"fd_close", "i", wasiEBADF},
	{"fd_datasync", "i", wasiEBADF},
	{"fd_fdstat_get", "ii", wasiWorks + " on 0, 1 and 2, else " + wasiEBADF},
	{"fd_fdstat_set_flags", "ii", wasiWorks + " on 0, 1 and 2, else " + wasiEBADF},
	{"fd_fdstat_set_rights", "ill", wasiENOSYS},
	{"fd_filestat_get", "ii", wasiEBADF},
	{"fd_filestat_set_size", "il", wasiEBADF},
	{"fd_filestat_set_times", "illi", wasiEBADF},
	{"fd_pread", "iiili", wasiEBADF},
	{"fd_prestat_get", "ii", wasiEBADF},
	{"fd_prestat_dir_name", "iii", wasiEBADF},
	{"fd_pwrite", "iiili", wasiEBADF},
	{"fd_read", "iiii", wasiEBADF},
	{"fd_readdir", "iiili", wasiEBADF},
	{"fd_renumber", "ii", wasiEBADF},
	{"fd_seek", "ilii", wasiEBADF},
	{"fd_sync", "i", wasiEBADF},
	{"fd_tell", "ii", wasiEBADF},
	{"fd_write", "iiii", wasiWorks + " on 1 and 2: a line in the host's log, up to 16 vectors and 4 KiB; else " + wasiEBADF},
	{"path_create_directory", "iii", wasiEBADF},
	{"path_filestat_get", "iiiii", wasiEBADF},
	{"path_filestat_set_times", "iiiilli", wasiEBADF},
	{"path_link", "iiiiiii", wasiEBADF},
	{"path_open", "iiiiillii", wasiEBADF},
	{"path_readlink", "iiiiii", wasiEBADF},
	{"path_remove_directory", "iii", wasiEBADF},
	{"path_rename", "iiiiii", wasiEBADF},
	{"path_symlink", "iiiii", wasiEBADF},
	{"path_unlink_file", "iii", wasiEBADF},
	{"poll_oneoff", "iiii", wasiWorks + ": the clock moves on to the earliest time asked for, up to 64 subscriptions"},
	{"proc_exit", "i", "traps, whatever the code"},
	{"proc_raise", "i", wasiENOSYS},
	{"random_get", "ii", wasiWorks + ": up to 256 bytes of a sequence that restarts at each call"},
	{"sched_yield", "", wasiWorks},
	{"sock_accept", "iii", wasiEBADF},
	{"sock_recv", "iiiiii", wasiEBADF},
	{"sock_send", "iiiii", wasiEBADF},
	{"sock_shutdown", "ii", wasiEBADF},
}
