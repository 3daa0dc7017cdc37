package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/plugins/abi"
)

type moduleList struct {
	Modules []store.Module `json:"modules"`
}

// moduleView is a module with what its manifest says.
type moduleView struct {
	store.Module
	DryRun        bool            `json:"dry_run,omitempty"`
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
		Limits: limitsView{mf.Limits.MemoryPages, mf.Limits.FuelBase, mf.Limits.FuelPerRow, mf.Limits.MaxRows},
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

func (s *Server) listModules(_ context.Context, x *exchange) error {
	return x.reply(fasthttp.StatusOK, moduleList{append([]store.Module{}, s.parts.Modules.List()...)})
}

func (s *Server) putModule(_ context.Context, x *exchange) error {
	dry, err := x.flag("dry_run")
	if err != nil {
		return err
	}
	body := x.rc.Request.Body()
	info, err := host.Inspect(body)
	x.digest = host.Digest(body)
	want := wantedDigest(x.query.Get("sha256"))
	if want != "" && want != x.digest {
		return &failure{
			Code: Code(abi.EDigest), Message: "the bytes do not have the declared digest",
			Details: Details{Step: host.StepDigest, Item: x.digest, Allowed: clip(want)},
		}
	}
	if err != nil {
		return err
	}
	if dry {
		v := describe(store.Module{Name: x.name, Digest: info.Digest, Size: int64(info.Size), At: time.Now().UTC()}, info)
		v.DryRun = true
		return x.reply(fasthttp.StatusOK, v)
	}
	m, created, err := s.parts.Modules.Put(x.name, bytes.NewReader(body), want)
	if err != nil {
		return err
	}
	return x.reply(putStatus(created), describe(m, info))
}

// wantedDigest reads ?sha256=, with or without its prefix.
func wantedDigest(v string) string {
	if v == "" || strings.HasPrefix(v, "sha256:") {
		return v
	}
	return "sha256:" + strings.ToLower(v)
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
