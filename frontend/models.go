package frontend

import (
	"bytes"
	"encoding/json"
	"net/url"

	"github.com/routerd/routerd/core"
)

// modelCard is a model as OpenAI clients know it. Parent is the base model of
// an adapter.
type modelCard struct {
	ID      string  `json:"id"`
	Object  string  `json:"object"`
	Created int64   `json:"created"`
	OwnedBy string  `json:"owned_by"`
	Root    string  `json:"root"`
	Parent  *string `json:"parent"`
}

func cardOf(m core.ModelCard) modelCard {
	c := modelCard{ID: m.ID, Object: "model", Created: m.Created, OwnedBy: "routerd", Root: m.ID}
	if m.Parent != "" {
		c.Parent = &m.Parent
	}
	return c
}

// baseModels are the models that requests are counted by.
func (s *Server) baseModels() map[string]struct{} {
	names := map[string]struct{}{}
	for _, m := range s.core.Models(defaultGroup) {
		if m.Parent == "" {
			names[m.ID] = struct{}{}
		}
	}
	return names
}

// models serves GET /v1/models.
func (s *Server) models(x *exchange) error {
	cards := []modelCard{}
	for _, m := range s.core.Models(defaultGroup) {
		cards = append(cards, cardOf(m))
	}
	return x.reply(map[string]any{"object": "list", "data": cards})
}

// model serves GET /v1/models/{id}. The id is taken from the raw path: it may
// hold slashes, as such or encoded.
func (s *Server) model(x *exchange) error {
	raw := bytes.TrimPrefix(x.path(), []byte("/v1/models/"))
	id, err := url.PathUnescape(string(raw))
	if err != nil {
		return &modelError{string(raw)}
	}
	for _, m := range s.core.Models(defaultGroup) {
		if m.ID == id {
			return x.reply(cardOf(m))
		}
	}
	return &modelError{id}
}

func (x *exchange) reply(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	x.ctx.SetContentType("application/json")
	x.ctx.Response.Header.Set(headerRequestID, x.id)
	x.ctx.SetBody(b)
	return nil
}
