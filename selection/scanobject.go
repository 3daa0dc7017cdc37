package selection

import (
	"slices"
	"strings"

	"github.com/routerd/routerd/internal/jsonscan"
)

// object reads a small object with a known set of fields, each at most once.
type object struct {
	r      *jsonscan.Reader
	path   string // of the object; empty for the body
	fields []string
	given  uint64 // by place in fields
}

// read calls f for each field that is given, with its place in fields; f reads the
// value.
func (o *object) read(f func(i int) error) error {
	path := o.path
	if path == "" {
		path = "body"
	}
	if err := opens(o.r, '{', path, "a JSON object"); err != nil {
		return err
	}
	return o.r.Object(func(key []byte) error {
		i := slices.IndexFunc(o.fields, func(name string) bool { return name == string(key) })
		if i < 0 {
			if len(o.fields) == 0 {
				return unknownField(o.name(string(key)), "an object without fields")
			}
			all := slices.Sorted(slices.Values(o.fields))
			return unknownField(o.name(string(key)), "the fields "+strings.Join(all, ", "))
		}
		if o.given>>i&1 == 1 {
			return repeated(o.name(o.fields[i]))
		}
		o.given |= 1 << i
		return f(i)
	})
}

// scalars is read for fields that are no arrays and no objects: f gets the value as it
// is written and the path of its field. null is as good as leaving the field out.
func (o *object) scalars(f func(i int, raw []byte, name string) error) error {
	return o.read(func(i int) error {
		raw, err := o.r.Value()
		if err != nil {
			return err
		}
		if string(raw) == "null" {
			o.given &^= 1 << i
			return nil
		}
		return f(i, raw, o.name(o.fields[i]))
	})
}

// require refuses an object without one of the fields.
func (o *object) require(fields ...int) error {
	for _, i := range fields {
		if o.given>>i&1 == 0 {
			return missing(o.name(o.fields[i]))
		}
	}
	return nil
}

// name is the path of a field.
func (o *object) name(field string) string {
	if o.path == "" {
		return field
	}
	return o.path + "." + field
}
