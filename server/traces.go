package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/quorate-dev/quorate/server/wire"
)

// Traces are spans of calls and of their requests to etcd, for a collector of OpenTelemetry. They hold names of
// objects, members, rules, steps and methods, and numbers: no key, value, user, password, message or error
// (docs/decisions/0056-traces.md). Make them with NewTraces.
type Traces struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// What is told beside what OpenTelemetry has a name for.
const (
	attrNamespace = attribute.Key("k8s.namespace.name")
	attrName      = attribute.Key("quorate.name")
	attrRule      = attribute.Key("quorate.rule")
	attrStep      = attribute.Key("quorate.step")
	attrOutcome   = attribute.Key("quorate.step.outcome")
	attrRepeated  = attribute.Key("quorate.repeated")
	attrMember    = attribute.Key("quorate.member")
	attrRoute     = attribute.Key("http.route")
	attrStatus    = attribute.Key("http.response.status_code")
	attrSystem    = attribute.Key("rpc.system.name")
	attrMethod    = attribute.Key("rpc.method")
	attrCode      = attribute.Key("rpc.response.status_code")
)

// longestAttribute is in bytes, unless the environment says otherwise; names in Kubernetes have 253.
const longestAttribute = 256

// NewTraces makes what sends traces, by the variables that OpenTelemetry's specification has for that; nil for none:
// without an endpoint, that is. They are read by OpenTelemetry's own packages, out of the environment of the process;
// getenv says whether there is anything to do.
func NewTraces(ctx context.Context, getenv func(string) string, version string, log *slog.Logger) (*Traces, error) {
	if err := wanted(getenv); err != nil {
		return nil, unlessOff(err)
	}
	read := &tracesLog{log: log}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) { read.warn(unusual, whichOne) }))
	otel.SetLogger(logr.FromSlogHandler(read))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, errors.New(whyNotSent(ctx, err))
	}
	// An error is about the environment, and the provider, which reads that too, tells the handler of it.
	about, _ := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "quorate"), attribute.String("service.version", version)),
		resource.WithFromEnv())
	limits := sdk.NewSpanLimits()
	if limits.AttributeValueLengthLimit < 0 {
		limits.AttributeValueLengthLimit = longestAttribute
	}
	provider := sdk.NewTracerProvider(sdk.WithResource(about), sdk.WithRawSpanLimits(limits),
		sdk.WithBatcher(&sender{exporter, &tracesLog{log: log}}))
	return &Traces{provider: provider, tracer: provider.Tracer("github.com/quorate-dev/quorate")}, nil
}

var errOff = errors.New("no endpoint is set")

func unlessOff(err error) error {
	if errors.Is(err, errOff) {
		return nil
	}
	return err
}

// wanted is nil where traces are to be sent, and can be. No error holds a value, which may be secret.
func wanted(getenv func(string) string) error {
	_, disabled := firstSet(getenv, "OTEL_SDK_DISABLED")
	_, exporter := firstSet(getenv, "OTEL_TRACES_EXPORTER")
	name, endpoint := firstSet(getenv, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	switch {
	case strings.EqualFold(disabled, "true"), exporter == "none":
		return errOff
	case endpoint == "" && exporter == "otlp":
		return errors.New("OTEL_TRACES_EXPORTER is otlp, and there is no endpoint: set OTEL_EXPORTER_OTLP_ENDPOINT")
	case endpoint == "":
		return errOff
	case exporter != "" && exporter != "otlp":
		return errors.New("OTEL_TRACES_EXPORTER is not otlp, which is the only one there is")
	}
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%s is not a URL such as http://collector.example:4318", name)
	}
	name, protocol := firstSet(getenv, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	if protocol != "" && !strings.HasPrefix(protocol, "http/") {
		return fmt.Errorf("%s is not http/protobuf or http/json: traces are sent by HTTP, which collectors usually take "+
			"at port 4318", name)
	}
	return nil
}

// firstSet is the first of these variables that is set, and its value; empty for none.
func firstSet(getenv func(string) string, names ...string) (name, value string) {
	for _, name := range names {
		if value := strings.TrimSpace(getenv(name)); value != "" {
			return name, value
		}
	}
	return "", ""
}

// Close sends what has not been sent, as far as there is time.
func (t *Traces) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// call makes a span of a call. The caller's one, if it has told of any, is above that.
func (t *Traces) call(c *gin.Context) {
	hook := c.FullPath()
	ctx := propagation.TraceContext{}.Extract(c.Request.Context(), propagation.HeaderCarrier(c.Request.Header))
	ctx, span := t.tracer.Start(ctx, hook, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attrRoute.String(hook)))
	c.Request = c.Request.WithContext(ctx)
	code := http.StatusInternalServerError // that of a panic
	defer func() {                         // a span that is itself deferred would tell what the panic says
		who, _ := c.Value(whoKey).(wire.Identity)
		span.SetAttributes(attrNamespace.String(who.Namespace), attrName.String(who.Name), attrStatus.Int(code))
		if code >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}()
	c.Next()
	code = c.Writer.Status()
}

// traceAnswer tells of a decision that is answered.
func traceAnswer(ctx context.Context, a *answered) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attrRule.String(a.because.Rule), attrRepeated.Bool(false))
	if a.outcome == nil {
		return
	}
	outcome := "done"
	if a.outcome.Err != "" {
		outcome = "failed"
	}
	span.SetAttributes(attrStep.String(a.outcome.Step.Verb()), attrOutcome.String(outcome))
}

// traceRepeated tells of a call that is answered as the one before, by the rule that fired then.
func traceRepeated(ctx context.Context, rule string) {
	trace.SpanFromContext(ctx).SetAttributes(attrRule.String(rule), attrRepeated.Bool(true))
}

// Tracer is that of [etcdops.Etcd]; nil for no traces.
func (t *Traces) Tracer() func(ctx context.Context, member, method string) (ended func(code uint32)) {
	if t == nil {
		return nil
	}
	return t.request
}

// request makes a span of a request to a member, below that of its call.
func (t *Traces) request(ctx context.Context, member, method string) (ended func(code uint32)) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return func(uint32) {}
	}
	_, span := t.tracer.Start(ctx, method, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attrMember.String(member)))
	service, name, isRPC := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return func(code uint32) {
		if isRPC {
			span.SetAttributes(attrSystem.String("grpc"), attrMethod.String(service+"/"+name),
				attrCode.String(codeName(code)))
		}
		if code != 0 {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// codeNames are those of gRPC, in the order of their numbers.
var codeNames = strings.Fields("OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS " +
	"PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE " +
	"DATA_LOSS UNAUTHENTICATED")

// codeName is the name of a code. What an etcd made up is not told.
func codeName(code uint32) string {
	if int(code) >= len(codeNames) {
		return "UNKNOWN"
	}
	return codeNames[code]
}

// sender sends spans, and tells our log why it can't.
type sender struct {
	sdk.SpanExporter

	told *tracesLog
}

// ExportSpans implements [sdk.SpanExporter].
func (s *sender) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := s.SpanExporter.ExportSpans(ctx, spans); err != nil {
		s.told.warn("traces are not sent", whyNotSent(ctx, err))
	}
	return nil
}

// refusedBy is how OpenTelemetry's exporter says with which status the collector refused.
var refusedBy = regexp.MustCompile(`failed to send to \S+: (\d{3})`)

// whyNotSent is in our words: those of the exporter hold its URL and what the collector answered, and either may have a
// password.
func whyNotSent(ctx context.Context, err error) string {
	var network *net.OpError
	var untrusted *tls.CertificateVerificationError
	var late net.Error
	switch {
	case errors.As(err, &untrusted):
		return untrusted.Error()
	case errors.As(err, &network):
		return network.Error()
	case errors.Is(err, http.ErrSchemeMismatch):
		return http.ErrSchemeMismatch.Error()
	}
	if refused := refusedBy.FindStringSubmatch(err.Error()); refused != nil {
		return "the collector answers with status " + refused[1]
	}
	switch {
	case strings.Contains(err.Error(), "retry-able request failure: body:"):
		return "the collector answers that it is not able to take them now"
	case ctx.Err() != nil, errors.As(err, &late) && late.Timeout():
		return "the collector does not answer in time"
	}
	return "the collector can't be asked, or does not take all of them"
}

// tracesLog is our log for what OpenTelemetry's packages say: once a minute, without the values, which may be secret.
type tracesLog struct {
	log *slog.Logger
	onceAMinute
}

func (l *tracesLog) warn(what, why string) {
	if worth, held := l.worth(time.Now()); worth {
		l.log.Warn(what, "error", why, "held_back", held)
	}
}

// unusual is of what OpenTelemetry's packages read of the environment.
const unusual = "a variable of OpenTelemetry does not count"

// whichOne stands for errors whose text has the variable's value.
const whichOne = "look at OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG"

// Enabled implements [slog.Handler]: for errors.
func (l *tracesLog) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}

// Handle implements [slog.Handler].
func (l *tracesLog) Handle(_ context.Context, r slog.Record) error {
	l.warn(unusual, r.Message)
	return nil
}

// WithAttrs implements [slog.Handler].
func (l *tracesLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements [slog.Handler].
func (l *tracesLog) WithGroup(string) slog.Handler { return l }
