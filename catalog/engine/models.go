package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
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

func (s *answers) readModels(body io.Reader) (err error) {
	s.models, err = cardsIn(body)
	return err
}

func cardsIn(body io.Reader) ([]card, error) {
	var list struct {
		Data []card `json:"data"`
	}
	if err := decode(body, &list); err != nil {
		return nil, err
	}
	return list.Data, nil
}

// Adapters reads the adapters from an engine's answer of /v1/models: the cards with a
// parent, without those of a base model's name and of names that no record can have.
// They are sorted, each is there once, and there are never more than a record holds.
func Adapters(body io.Reader, base ...string) ([]string, error) {
	cards, err := cardsIn(body)
	if err != nil {
		return nil, fmt.Errorf("read /v1/models: %w", err)
	}
	return adaptersOf(cards, base), nil
}

func adaptersOf(cards []card, base []string) []string {
	names := []string{}
	for _, c := range cards {
		if c.Parent != "" && named(c.ID) && !slices.Contains(base, c.ID) {
			names = append(names, c.ID)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), fleet.MaxAdapters)]
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

// base are the base models by name, each once, without names that no record can have.
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

// named tells whether a record can have the name.
func named(name string) bool { return fleet.CheckName("id", name) == nil }
