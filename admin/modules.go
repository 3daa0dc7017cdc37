package admin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/library"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/httpapi"
	"github.com/routerd/routerd/plugins/abi"
)

type moduleList struct {
	Modules   []store.Module  `json:"modules"`
	Directory *library.Status `json:"directory,omitempty"` // nil without a module directory
}

// moduleView is a module with what its manifest says.
type moduleView struct {
	store.Module
	DryRun        bool            `json:"dry_run,omitempty"`
	Checked       host.Checked    `json:"checked,omitempty"` // how far the load pipeline went; of PUT alone
	Title         string          `json:"manifest_name"`
	Version       string          `json:"version"`
	Description   string          `json:"description,omitempty"`
	License       string          `json:"license,omitempty"`
	Kinds         []string        `json:"kinds"`
	Columns       []string        `json:"columns"`
	RequestFields []string        `json:"request_fields"`
	ConfigSchema  json.RawMessage `json:"config_schema,omitempty"`
	Limits        limitsView      `json:"limits"`
	Deterministic bool            `json:"deterministic"`
	Imports       []string        `json:"imports"`
	SDK           sdkView         `json:"sdk"`
}

type limitsView struct {
	MemoryPages uint32 `json:"memory_pages"`
	FuelBase    uint64 `json:"fuel_base"`
	FuelPerRow  uint64 `json:"fuel_per_row"`
	MaxRows     int    `json:"max_rows"`
}

type sdkView struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

func describe(m store.Module, info *host.Info) moduleView {
	mf := info.Manifest
	v := moduleView{
		Module: m, Title: mf.Name, Version: mf.Version, Description: mf.Description, License: mf.License,
		Kinds: []string{}, Columns: []string{}, RequestFields: append([]string{}, mf.RequestFields...),
		ConfigSchema: mf.ConfigSchema, Deterministic: mf.Deterministic, Imports: append([]string{}, info.Imports...),
		Limits: viewLimits(info),
		SDK:    sdkView{mf.SDK.Name, mf.SDK.Version},
	}
	for _, k := range mf.Kinds {
		v.Kinds = append(v.Kinds, string(k))
	}
	for _, c := range mf.Columns {
		v.Columns = append(v.Columns, c.Name)
	}
	return v
}

func viewLimits(info *host.Info) limitsView {
	l := info.Manifest.Limits
	return limitsView{l.MemoryPages, l.FuelBase, l.FuelPerRow, l.MaxRows}
}

func (s *Server) listModules(_ context.Context, x *exchange) error {
	list := moduleList{Modules: append([]store.Module{}, s.parts.Modules.List()...)}
	if st, ok := s.parts.Modules.Directory(); ok {
		list.Directory = &st
	}
	return x.reply(fasthttp.StatusOK, list)
}

func (s *Server) putModule(ctx context.Context, x *exchange) error {
	dry, err := x.flag("dry_run")
	if err != nil {
		return err
	}
	// A copy: the request's bytes die with the handler, and what is loaded of them
	// is shared with whoever uses the same module.
	body := bytes.Clone(x.rc.Request.Body())
	x.digest = host.Digest(body)
	if x.query.Has("sha256") {
		if err := declared(x.query.Get("sha256"), x.digest); err != nil {
			return err
		}
	}
	done, err := s.parts.Modules.Put(ctx, x.name, body, dry)
	if err != nil {
		return err
	}
	v := describe(done.Module, done.Info)
	v.DryRun, v.Checked = dry, done.Checked
	return x.reply(putStatus(done.Created), v)
}

// declared compares the digest that the caller declared with what the bytes have.
func declared(text, have string) error {
	const prefix = "sha256:"
	digits := strings.ToLower(strings.TrimPrefix(text, prefix))
	if sum, err := hex.DecodeString(digits); err != nil || len(sum) != sha256.Size {
		return httpapi.Invalid("query parameter sha256", fmt.Sprintf("%q is not allowed", httpapi.Clip(text)), `64 hexadecimal digits, with or without "sha256:"`)
	}
	if prefix+digits == have {
		return nil
	}
	return &failure{
		Code: Code(abi.EDigest), Message: "the bytes do not have the declared digest",
		Details: Details{Step: host.StepDigest, Item: have, Allowed: prefix + digits},
	}
}

func putStatus(created bool) int {
	if created {
		return fasthttp.StatusCreated
	}
	return fasthttp.StatusOK
}

func (s *Server) showModule(_ context.Context, x *exchange) error {
	m, err := s.parts.Modules.Get(x.name)
	if err != nil {
		return err
	}
	wasm, err := s.parts.Modules.Bytes(m.Digest)
	if err != nil {
		return err
	}
	info, err := host.Inspect(wasm)
	if err != nil {
		return err
	}
	return x.reply(fasthttp.StatusOK, describe(m, info))
}

func (s *Server) deleteModule(_ context.Context, x *exchange) error {
	if m, err := s.parts.Modules.Get(x.name); err == nil {
		x.digest = m.Digest
	}
	if err := s.parts.Modules.Delete(x.name); err != nil {
		return err
	}
	x.rc.SetStatusCode(fasthttp.StatusNoContent)
	return nil
}
