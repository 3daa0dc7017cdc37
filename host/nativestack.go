package host

import (
	"errors"
	"reflect"

	"github.com/tetratelabs/wazero/api"
)

// A guest's native stack is the daemon's memory, outside plugins.memory_limit.
// Its price in fuel does not bound it: the frame of a body is as large as its
// values that live across a call, which can be a hundred times the body's bytes,
// and only the engine's compiler knows it. The engine itself stops near 100 MB
// and keeps what an instance once needed. So the host looks at the stack itself:
// at the end of each slice, and after each call.

// maxNativeStack bounds the stack of one instance, in bytes. Stacks double, from
// 10 KiB, and a slice can add to it before the next look.
const maxNativeStack = 4 << 20

// errStack ends a call whose native stack is too large.
var errStack = errors.New("native stack too large")

// nativeStack is the engine's stack of one function object. The engine tells
// nobody how large it is: its length is read from the field that holds it, which
// a test keeps an eye on. The zero value is a stack of nothing.
type nativeStack struct{ field reflect.Value }

// stackOf finds the stack of f; the engine's interpreter has none.
func stackOf(f api.Function) nativeStack {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nativeStack{}
	}
	field := v.Elem().FieldByName("stack")
	if !field.IsValid() || field.Type() != reflect.TypeFor[[]byte]() {
		return nativeStack{}
	}
	return nativeStack{field}
}

// size is the stack's size now, in bytes. Only the goroutine that calls the
// function may ask.
func (s nativeStack) size() int {
	if !s.field.IsValid() {
		return 0
	}
	return s.field.Len()
}
