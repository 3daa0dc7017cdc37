package adapters

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/fleet"
)

// Bounds of the configuration.
const (
	MaxSlots     = 1024
	maxPathBytes = 4096
)

// Adapter is an adapter that routerd loads and unloads.
type Adapter struct {
	Name  string `koanf:"name" doc:"Name that requests use."`
	Model string `koanf:"model" doc:"Base model; the adapter is loaded on workers of this model, in every routing group."`
	Path  string `koanf:"path" doc:"Where the engines find it: a folder on their machines, or a name that they can download."`
}

// Config says which adapters routerd loads and unloads by itself. The zero value
// manages none.
type Config struct {
	Manage []Adapter `koanf:"manage" reload:"live" doc:"Adapters that routerd loads and unloads on the workers of their model (engines vllm and sglang); one that is taken out is left as it is."`
	Slots  int       `koanf:"slots" reload:"live" min:"1" max:"1024" doc:"Adapters that one worker holds."`
}

// DefaultConfig manages nothing and gives a worker 4 slots.
func DefaultConfig() Config { return Config{Slots: lora.DefaultSlots} }

// Validate reports the first field that is out of range as a *fleet.FieldError.
func (c Config) Validate() error {
	if c.Slots < 1 || c.Slots > MaxSlots {
		return &fleet.FieldError{Field: "slots", Value: strconv.Itoa(c.Slots), Allowed: "1 to " + strconv.Itoa(MaxSlots)}
	}
	if len(c.Manage) > fleet.MaxAdapters {
		return &fleet.FieldError{Field: "manage (count)", Value: strconv.Itoa(len(c.Manage)), Allowed: "at most " + strconv.Itoa(fleet.MaxAdapters)}
	}
	models, names := map[string]bool{}, map[string]bool{}
	for _, a := range c.Manage {
		models[a.Model] = true
	}
	for i, a := range c.Manage {
		field := func(name string) string { return fmt.Sprintf("manage[%d].%s", i, name) }
		if err := cmp.Or(fleet.CheckName(field("name"), a.Name), fleet.CheckName(field("model"), a.Model)); err != nil {
			return err
		}
		switch {
		case !plain(a.Path):
			return &fleet.FieldError{Field: field("path"), Value: a.Path, Allowed: "1 to 4096 bytes of printable text"}
		case names[a.Name] || models[a.Name]:
			return &fleet.FieldError{Field: field("name"), Value: a.Name, Allowed: "a name that no other managed adapter and no model of one has"}
		}
		names[a.Name] = true
	}
	return nil
}

// plain tells whether a path is printable, not empty and not too long.
func plain(path string) bool {
	return path != "" && len(path) <= maxPathBytes && utf8.ValidString(path) &&
		!strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f })
}
