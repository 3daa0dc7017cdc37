package admin

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/common/expfmt"
	"github.com/valyala/fasthttp"
)

type statusAnswer struct {
	Status string `json:"status"`
}

func (s *Server) health(_ context.Context, x *exchange) error {
	return x.reply(fasthttp.StatusOK, statusAnswer{"ok"})
}

func (s *Server) ready(_ context.Context, x *exchange) error {
	if err := s.parts.Ready(); err != nil {
		return &failure{Code: CodeUnavailable, Message: err.Error(), Details: Details{Step: "ready"}}
	}
	return x.reply(fasthttp.StatusOK, statusAnswer{"ready"})
}

// showMetrics writes what could be gathered; what could not is logged.
func (s *Server) showMetrics(_ context.Context, x *exchange) error {
	families, err := s.parts.Metrics.Gather()
	if err != nil {
		if len(families) == 0 {
			return fmt.Errorf("gather metrics: %w", err)
		}
		s.log.Warn("some metrics could not be gathered", slog.Any("err", err))
	}
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	var text bytes.Buffer
	enc := expfmt.NewEncoder(&text, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return fmt.Errorf("encode metrics: %w", err)
		}
	}
	x.rc.SetContentType(string(format))
	x.rc.SetBody(text.Bytes())
	return nil
}
