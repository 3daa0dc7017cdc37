package frontend

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
)

const (
	headerFinal = prefixOurs + "Session-Final"

	prefixDynamo = "X-Dynamo-"
	prefixClaude = "X-Claude-Code-"
	prefixCodex  = "X-Codex-"

	claudeSession = "x-claude-code-session-id"
	claudeAgent   = "x-claude-code-agent-id"
	claudeParent  = "x-claude-code-parent-agent-id"
	codexWindow   = "x-codex-window-id"
	codexParent   = "x-codex-parent-thread-id"
)

// Names by which other routers' callers know sessions: the flat form, which
// counts only where nothing names a session of the structured one.
var (
	flatSession = []string{"X-Session-Id", prefixDynamo + "Session-Id"}
	flatParent  = []string{"X-Parent-Session-Id", prefixDynamo + "Parent-Session-Id"}
	final       = []string{headerFinal, prefixDynamo + "Session-Final"}
)

// kinds tells which headers that steer a request are there.
type kinds struct {
	routing bool // of those that trust_headers is about
	agent   bool // of those that agents send by themselves
}

// kindsOf looks once over all headers: most requests have none.
func kindsOf(h *fasthttp.RequestHeader) (k kinds) {
	for key := range h.All() {
		switch {
		case len(key) < len(prefixCodex) || key[0] != 'X':
		case isAgent(key):
			k.agent = true
		case bytes.HasPrefix(key, []byte(prefixOurs)), bytes.HasPrefix(key, []byte(prefixDynamo)),
			string(key) == flatSession[0], string(key) == flatParent[0]:
			k.routing = true
		}
	}
	return k
}

// isAgent tells whether an agent says something of itself in a header.
func isAgent(key []byte) bool {
	return bytes.HasPrefix(key, []byte(prefixClaude)) || bytes.HasPrefix(key, []byte(prefixCodex)) ||
		string(key) == "X-Openai-Subagent" || string(key) == "X-Openai-Memgen-Request"
}

// steer fills a request with what its headers say of where it should go, and
// with those that policies may see. An error names the header.
func (c *Config) steer(h *fasthttp.RequestHeader, req *core.Request) error {
	has := kindsOf(h)
	if has.agent {
		headers := agentHeaders(h)
		id, parent := agentSession(headers)
		// Who is not trusted to say where a request goes does not say it this way
		// either.
		req.SessionContext = &core.SessionContext{ID: id, Parent: parent, AgentHeaders: headers, Advice: !c.TrustHeaders}
	}
	if has.routing && c.TrustHeaders {
		if err := routingHeaders(h, req); err != nil {
			return err
		}
		if err := sessionHeaders(h, req); err != nil {
			return err
		}
	}
	req.Headers = policyHeaders(h, c.PolicyHeaders)
	return nil
}

// agentHeaders are an agent's own headers by name in lower case, the values of
// one that occurs several times joined. They come from software that knows
// nothing of this router: what is out of bounds counts as not sent.
func agentHeaders(h *fasthttp.RequestHeader) map[string]string {
	out, sum := map[string]string{}, 0
	for key := range h.All() {
		if !isAgent(key) {
			continue
		}
		name := strings.ToLower(string(key))
		if _, twice := out[name]; twice || len(out) == core.MaxAgentHeaders || len(name) > core.MaxHeaderBytes {
			continue
		}
		value := joined(h.PeekAll(string(key)))
		if len(value) == 0 || len(value) > core.MaxAgentHeaderBytes || sum+len(value) > core.MaxAgentBytes {
			continue
		}
		sum += len(value)
		out[name] = string(value)
	}
	return out
}

// agentSession is the session that an agent's headers name, and the one that
// started it. Claude Code's agents are told apart within its session, by names
// that other sessions use too; its first agent has none. Codex says which
// window of which thread is asking: the thread is the session.
func agentSession(headers map[string]string) (id, parent string) {
	session, agent, by := usable(headers[claudeSession]), usable(headers[claudeAgent]), usable(headers[claudeParent])
	switch {
	case agent != "":
		return within(session, agent), within(session, by)
	case session != "":
		return session, ""
	}
	thread := headers[codexWindow]
	if i := strings.LastIndexByte(thread, ':'); i >= 0 {
		thread = thread[:i]
	}
	return usable(thread), usable(headers[codexParent])
}

// slashless keeps a session's name apart from its agent's.
var slashless = strings.NewReplacer("%", "%25", "/", "%2F")

// within names an agent of a session; the session itself without an agent, and
// nothing where the name would be too long.
func within(session, agent string) string {
	switch {
	case session == "":
		return agent
	case agent == "":
		return session
	}
	return usable(slashless.Replace(session) + "/" + agent)
}

// usable is an id, or nothing when it cannot be one.
func usable(id string) string {
	if len(id) > core.MaxIDBytes || !printable(id) {
		return ""
	}
	return id
}

// sessionHeaders fills a request with what the trusted headers say of its
// session. Who names a session there replaces what the agent says of it.
func sessionHeaders(h *fasthttp.RequestHeader, req *core.Request) error {
	var id, parent string
	for _, f := range []struct {
		names []string
		to    *string
	}{
		{[]string{headerSession}, &id},
		{[]string{headerParent}, &parent},
		{flatSession, &req.Session},
		{flatParent, &req.ParentSession},
	} {
		v, err := identifier(h, f.names)
		if err != nil {
			return err
		}
		*f.to = v
	}
	ends, err := finalOf(h)
	if err != nil {
		return err
	}
	c := req.SessionContext
	if c == nil && (id != "" || parent != "") {
		c = &core.SessionContext{}
		req.SessionContext = c
	}
	req.SessionFinal = ends
	if c == nil {
		return nil
	}
	c.Final = ends
	if id != "" {
		c.ID, c.Parent = id, parent
	}
	if parent != "" {
		c.Parent = parent
	}
	return nil
}

// finalOf tells whether the request says that it is its session's last one.
func finalOf(h *fasthttp.RequestHeader) (bool, error) {
	for _, name := range final {
		v, ok, err := single(h, name)
		if err != nil {
			return false, err
		}
		if !ok || v == "" {
			continue
		}
		ends, err := strconv.ParseBool(v)
		if err != nil {
			return false, badHeader(name, v, "true or false")
		}
		return ends, nil
	}
	return false, nil
}
