package guest

import (
	"errors"
	"runtime"
	"unsafe"

	"github.com/routerd/routerd/plugins/sdk/go/frame"
)

// Module is what a plugin declares: its columns and request fields in the order
// of the manifest, and what it does with its config (nil = nothing).
type Module struct {
	Columns   []string
	Fields    []string
	Configure func(config []byte) error
}

// ErrAbstain is what a plugin returns when it has no opinion on a request.
var ErrAbstain = errors.New("abstain")

// maxLastError is how much of an error the host asks for.
const maxLastError = 1024

// maxAlloc bounds one rp_alloc: a config or a frame is never larger.
const maxAlloc = 256 << 20

// instance is the one plugin of this module: exports are plain functions, so
// what they work on has to be a package variable.
var instance struct {
	registered bool
	module     Module
	view       frame.View
	blocks     [][]byte // what the host asked for, kept for the instance's life
	absent     []float64
	lastError  []byte
}

// Register declares the plugin. Call it from package initialisation, once.
func Register(m Module) {
	if instance.registered {
		panic("guest: a module is one plugin, and one is registered already")
	}
	instance.module, instance.registered = m, true
}

func leastMinor() int32 {
	return max(frame.LeastMinor(instance.module.Columns), frame.LeastMinor(instance.module.Fields))
}

// alloc returns size bytes on frame.Align, or nil.
func alloc(size int) unsafe.Pointer {
	if size < 1 || size > maxAlloc {
		return nil
	}
	block := make([]byte, size+frame.Align)
	instance.blocks = append(instance.blocks, block)
	p := unsafe.Pointer(unsafe.SliceData(block))
	return unsafe.Add(p, -uintptr(p)&(frame.Align-1))
}

func configure(config []byte) int32 {
	if instance.module.Configure == nil {
		return frame.CodeOK
	}
	if err := instance.module.Configure(config); err != nil {
		return fail(frame.CodeBadConfig, err)
	}
	return frame.CodeOK
}

func bind(p unsafe.Pointer, capacity int) int32 {
	instance.absent = make([]float64, max(capacity, 1))
	return instance.view.Bind(p, unsafe.Pointer(unsafe.SliceData(instance.absent)),
		capacity, len(instance.module.Columns), len(instance.module.Fields))
}

// View is the frame of this module's calls, bound or not yet.
func View() *frame.View { return &instance.view }

// Begin starts a call on the frame that was bound. A code other than
// frame.CodeOK is the call's answer.
func Begin(p unsafe.Pointer) int32 { return instance.view.Begin(p) }

// End is the call's answer for what the plugin returned. Where the plugin
// allocates, Go's collector gets its turn: it runs on a goroutine of its own,
// which between calls never would.
func End(err error, allocates bool) int32 {
	code := int32(frame.CodeOK)
	switch {
	case err == nil:
	case errors.Is(err, ErrAbstain):
		code = frame.CodeAbstain
	default:
		code = fail(frame.CodeInternal, err)
	}
	if allocates {
		runtime.Gosched()
	}
	return code
}

func fail(code int32, err error) int32 {
	text := err.Error()
	instance.lastError = append(instance.lastError[:0], text[:min(len(text), maxLastError)]...)
	return code
}
