package etcdops

import (
	"context"
	"errors"
	"net"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate-dev/quorate/etcdops/reach"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Endpoints that are not pods of ours are named by the author of a spec. They are dialed at the addresses that the
// installation allows and at no other, and what is told of them is one of a few clauses of ours: nothing that answers
// there can have its words shown.

// dialExternal connects to an endpoint of another etcd, where that is allowed.
func (e *Etcd) dialExternal(ctx context.Context, endpoint observation.Endpoint) (net.Conn, error) {
	within := reach.Within{Allowed: endpoint.Allowed, Namespace: endpoint.Namespace}
	target, control, err := within.To(address(endpoint))
	if err != nil {
		return nil, err
	}
	return e.connect(ctx, target, control)
}

// inOurWords puts what an endpoint of another etcd answers into words of ours, before anything else of the client's
// sees it.
func inOurWords(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	answer, is := status.FromError(err)
	if err == nil || !is {
		return err
	}
	words := ourWords(answer)
	if words == noEtcd { // no refusal of etcd's
		return status.Error(codes.Unavailable, words)
	}
	return status.Error(answer.Code(), words)
}

// Clauses for what an endpoint may be found to be. Each is the end of the text in which Go's packages say so.
var (
	unreachable = []string{
		reach.ErrForbidden.Error(), "connection refused", "no such host", "network is unreachable", "no route to host",
		"connection reset by peer", "i/o timeout", "server misbehaving", "EOF",
	}
	// untrusted are beginnings: what follows them may be out of the certificate that was shown.
	untrusted = []string{
		"failed to verify certificate: x509: certificate signed by unknown authority",
		"failed to verify certificate: x509: certificate has expired or is not yet valid",
		"failed to verify certificate: x509: certificate is valid for",
		"failed to verify certificate: x509: certificate is not valid for any names",
		"failed to verify certificate: x509: cannot validate certificate", "failed to verify certificate",
		"first record does not look like a TLS handshake", "handshake failure", "bad certificate",
		"certificate required", "unknown certificate authority", "expired certificate",
		"unsupported certificate", "unknown certificate", "protocol version not supported",
		"it takes no certificate of our authority",
	}
)

// noEtcd is all that is told of what answers in any other way.
const noEtcd = "its answer is not from etcd"

// ourWords are those for what an endpoint answered, or for why it did not. They keep the form by which explain tells
// them apart.
func ourWords(answer *status.Status) string {
	said := answer.Message()
	var known rpctypes.EtcdError
	if errors.As(rpctypes.Error(answer.Err()), &known) || answers[said] != nil { // one out of etcd's own table
		return said
	}
	if words := noAnswer(said); words != "" {
		return words
	}
	switch answer.Code() { //nolint:exhaustive // the others say nothing that is told
	case codes.Canceled, codes.DeadlineExceeded:
		return answer.Code().String()
	case codes.Unavailable:
		return whyNot(said)
	}
	return noEtcd
}

// whyNot is why there is no connection.
func whyNot(said string) string {
	if strings.Contains(said, "server preface") {
		return noEtcd
	}
	if strings.Contains(said, "tls: ") || strings.Contains(said, "x509: ") {
		clause := tlsClause(said)
		for _, known := range untrusted {
			if strings.HasPrefix(strings.TrimPrefix(clause, "remote error: "), known) {
				return "tls: " + strings.TrimSuffix(known, " for")
			}
		}
		return "tls: the two sides don't accept each other's certificate"
	}
	for _, known := range unreachable {
		if strings.HasSuffix(lastClause(said), known) {
			return known
		}
	}
	return "it is not connected"
}
