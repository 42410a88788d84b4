//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// members are the etcd members of the whole fleet in one server. Who is asked, it knows by the address that was called.
type members struct {
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedClusterServer

	fleet   *fleet
	latency time.Duration
}

// What all members say of their log.
const term, index = 2, 1000

// listen answers on etcd's client port, on the loopback interface alone, until stop is called.
func (m *members) listen(ctx context.Context) (stop func(), err error) {
	// One listener for a hundred thousand addresses: on any address, bound to the interface.
	loopback := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var bound error
		err := c.Control(func(fd uintptr) {
			bound = syscall.SetsockoptString(int(fd), syscall.SOL_SOCKET, syscall.SO_BINDTODEVICE, "lo")
		})
		return errors.Join(err, bound)
	}}
	l, err := loopback.Listen(ctx, "tcp4", net.JoinHostPort("0.0.0.0", strconv.Itoa(objects.ClientPort)))
	if err != nil {
		return nil, err
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12,
		GetConfigForClient: m.configFor})))
	pb.RegisterMaintenanceServer(s, m)
	pb.RegisterClusterServer(s, m)
	go func() { _ = s.Serve(l) }()
	return s.Stop, nil
}

// configFor is what the called member shows, and whose certificates it takes.
func (m *members) configFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	time.Sleep(m.latency)
	c, _, err := m.fleet.memberAt(hello.Conn.LocalAddr())
	if err != nil {
		return nil, err
	}
	if c.silent {
		time.Sleep(time.Minute) // longer than any caller waits
	}
	c.tlsOnce.Do(func() {
		pair, failed := tls.X509KeyPair(c.shown[objects.KeyCertificate], c.shown[objects.KeyPrivate])
		if failed != nil {
			err = failed
			return
		}
		trust := x509.NewCertPool()
		trust.AppendCertsFromPEM(c.shown[objects.KeyTrust])
		c.tls = &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
			Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trust,
		}
	})
	return c.tls, err
}

// asked says which member a call is for, a little late.
func (m *members) asked(ctx context.Context) (int, error) {
	time.Sleep(m.latency)
	from, ok := peer.FromContext(ctx)
	if !ok {
		return 0, errors.New("the call has no peer")
	}
	_, member, err := m.fleet.memberAt(from.LocalAddr)
	return member, err
}

func (m *members) header(member int) *pb.ResponseHeader {
	s := m.fleet.parent.Status
	return &pb.ResponseHeader{ClusterId: hexadecimal(s.ClusterID), MemberId: hexadecimal(s.Members[member].ID),
		RaftTerm: term, Revision: index}
}

// Status is what the recorded status says of the member.
func (m *members) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	member, err := m.asked(ctx)
	if err != nil {
		return nil, err
	}
	recorded := m.fleet.parent.Status.Members[member]
	answer := &pb.StatusResponse{
		Header: m.header(member), Version: recorded.Version, RaftTerm: term, RaftIndex: index, RaftAppliedIndex: index,
		DbSize: recorded.DBSize.Value(), DbSizeInUse: recorded.DBSizeInUse.Value(), StorageVersion: "3.6.0",
	}
	for _, other := range m.fleet.parent.Status.Members {
		if other.Leader {
			answer.Leader = hexadecimal(other.ID)
		}
	}
	return answer, nil
}

// MemberList has the members under the names that they were recorded with.
func (m *members) MemberList(ctx context.Context, _ *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	member, err := m.asked(ctx)
	if err != nil {
		return nil, err
	}
	answer := &pb.MemberListResponse{Header: m.header(member)}
	for _, other := range m.fleet.parent.Status.Members {
		answer.Members = append(answer.Members, &pb.Member{
			ID: hexadecimal(other.ID), Name: other.Name,
			PeerURLs:   []string{objects.PeerURL(&m.fleet.parent, other.Name, "")},
			ClientURLs: []string{objects.ClientURL(&m.fleet.parent, other.Name, "")},
		})
	}
	return answer, nil
}

// hexadecimal reads an ID of a recorded status, which Quorate wrote.
func hexadecimal(id string) uint64 {
	n, err := strconv.ParseUint(id, 16, 64)
	if err != nil {
		panic(fmt.Sprintf("the recorded ID %q: %v", id, err))
	}
	return n
}
