package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/routerd/routerd/fleet"
)

const maxModels = 64 // base models of one engine that are kept

// card is one entry of /v1/models.
type card struct {
	ID      string `json:"id"`
	OwnedBy string `json:"owned_by"`
	Parent  string `json:"parent"`
}

func (s *answers) readModels(body io.Reader) error {
	var list struct {
		Data []card `json:"data"`
	}
	if err := decode(body, &list); err != nil {
		return err
	}
	s.models = list.Data
	return nil
}

func (s *answers) readVersion(body io.Reader) error {
	var v struct {
		Version string `json:"version"`
	}
	if err := decode(body, &v); err != nil {
		return err
	}
	s.version = v.Version
	return nil
}

func decode(body io.Reader, into any) error {
	text, err := whole(body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("not the JSON that engines answer: %w", shortened(err))
	}
	return nil
}

// owners are the engines by the owner of their models.
func ownedBy(owner string) string {
	switch strings.ToLower(owner) {
	case "vllm":
		return vllm
	case "sglang":
		return sglang
	case "tensorrt_llm", "tensorrt-llm", "trtllm":
		return trtllm
	}
	return ""
}

// base and adapters are the models by name, each once, without names that no record
// can have.
func (s *answers) base() []string {
	var names []string
	seen := map[string]bool{}
	for _, c := range s.models {
		if c.Parent == "" && named(c.ID) && !seen[c.ID] && len(names) < maxModels {
			names, seen[c.ID] = append(names, c.ID), true
		}
	}
	return names
}

func (s *answers) adapters() []fleet.Adapter {
	var adapters []fleet.Adapter
	seen := map[string]bool{}
	for _, name := range s.base() {
		seen[name] = true
	}
	for _, c := range s.models {
		if c.Parent != "" && named(c.ID) && !seen[c.ID] && len(adapters) < fleet.MaxAdapters {
			adapters, seen[c.ID] = append(adapters, fleet.Adapter{Name: c.ID}), true
		}
	}
	return adapters
}

// named tells whether a record can have the name.
func named(name string) bool { return fleet.CheckName("id", name) == nil }
