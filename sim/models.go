package sim

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"
)

// modelCard is one entry of GET /v1/models.
type modelCard struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	Created     int64             `json:"created"`
	OwnedBy     string            `json:"owned_by"`
	Root        string            `json:"root"`
	Parent      *string           `json:"parent"`
	MaxModelLen *int              `json:"max_model_len"`
	Permission  []modelPermission `json:"permission"`
}

type modelPermission struct {
	ID            string  `json:"id"`
	Object        string  `json:"object"`
	Created       int64   `json:"created"`
	CreateEngine  bool    `json:"allow_create_engine"`
	Sampling      bool    `json:"allow_sampling"`
	Logprobs      bool    `json:"allow_logprobs"`
	SearchIndices bool    `json:"allow_search_indices"`
	View          bool    `json:"allow_view"`
	FineTuning    bool    `json:"allow_fine_tuning"`
	Organization  string  `json:"organization"`
	Group         *string `json:"group"`
	Blocking      bool    `json:"is_blocking"`
}

// cards lists the base model and then its adapters.
func (e *Engine) cards() []modelCard {
	permission := modelPermission{
		ID: "modelperm-" + e.cfg.Name, Object: "model_permission", Created: e.created,
		Sampling: true, Logprobs: true, View: true, Organization: "*",
	}
	owner := e.cfg.Face.owner()
	list := []modelCard{{
		ID: e.cfg.Model, Object: "model", Created: e.created, OwnedBy: owner, Root: e.cfg.Model,
		MaxModelLen: &e.cfg.MaxModelLen, Permission: []modelPermission{permission},
	}}
	if e.cfg.Face == FaceTensorRTLLM {
		return list // its list has no adapters
	}
	for _, a := range e.adapters.list() {
		list = append(list, modelCard{
			ID: a.name, Object: "model", Created: e.created, OwnedBy: owner, Root: a.path,
			Parent: &e.cfg.Model, Permission: []modelPermission{},
		})
	}
	return list
}

// plainCards are cards without vLLM's permissions, as other engines list them.
func plainCards(cards []modelCard) any {
	type plainCard struct {
		ID          string  `json:"id"`
		Object      string  `json:"object"`
		Created     int64   `json:"created"`
		OwnedBy     string  `json:"owned_by"`
		Root        string  `json:"root"`
		Parent      *string `json:"parent"`
		MaxModelLen *int    `json:"max_model_len"`
	}
	list := []plainCard{}
	for _, c := range cards {
		list = append(list, plainCard{c.ID, c.Object, c.Created, c.OwnedBy, c.Root, c.Parent, c.MaxModelLen})
	}
	return list
}

func (e *Engine) models(x *exchange) {
	var data any = e.cards()
	if face := e.cfg.Face; face.sglang() || face == FaceTensorRTLLM {
		data = plainCards(e.cards())
	}
	x.reply(fasthttp.StatusOK, struct {
		Object string `json:"object"`
		Data   any    `json:"data"`
	}{"list", data})
}

// model serves GET /v1/models/ID; an id may hold slashes.
func (e *Engine) model(x *exchange) {
	id := strings.TrimPrefix(string(x.Path()), modelPrefix)
	list := e.cards()
	i := slices.IndexFunc(list, func(c modelCard) bool { return c.ID == id })
	if i < 0 {
		x.fail(unknownModel(id, e.cfg.Model))
		return
	}
	x.reply(fasthttp.StatusOK, list[i])
}

type tokenizeRequest struct {
	conversation
	Model       string  `json:"model"`
	Prompt      *string `json:"prompt"`
	WithStrings bool    `json:"return_token_strs"`
}

// tokenize serves POST /tokenize for a prompt or a conversation.
func (e *Engine) tokenize(x *exchange) {
	var req tokenizeRequest
	if err := json.Unmarshal(x.PostBody(), &req); err != nil {
		x.fail(decodeError(err))
		return
	}
	if _, err := e.newJob(x, "", req.Model); err != nil {
		x.fail(err)
		return
	}
	var text string
	switch {
	case req.Prompt != nil && req.Messages == nil:
		text = *req.Prompt
	case req.Prompt == nil:
		var err error
		if text, err = req.render(); err != nil {
			x.fail(err)
			return
		}
	default:
		x.fail(badRequest("prompt", "Fields \"prompt\" and \"messages\": allowed: one of the two."))
		return
	}
	e.pieces.learn(text)
	body := struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []uint32 `json:"tokens"`
		Strings     []string `json:"token_strs"`
	}{MaxModelLen: e.cfg.MaxModelLen, Tokens: Tokenize(text)}
	body.Count = len(body.Tokens)
	if req.WithStrings {
		body.Strings = []string{}
		for len(text) > 0 {
			n := pieceLength(text)
			body.Strings = append(body.Strings, text[:n])
			text = text[n:]
		}
	}
	x.reply(fasthttp.StatusOK, body)
}

// detokenize serves POST /detokenize. Ids are known once their text was seen.
func (e *Engine) detokenize(x *exchange) {
	var req struct {
		Model  string   `json:"model"`
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.Unmarshal(x.PostBody(), &req); err != nil {
		x.fail(decodeError(err))
		return
	}
	if _, err := e.newJob(x, "", req.Model); err != nil {
		x.fail(err)
		return
	}
	x.reply(fasthttp.StatusOK, map[string]string{"prompt": e.pieces.text(req.Tokens)})
}
