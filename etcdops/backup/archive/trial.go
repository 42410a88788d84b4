package archive

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/quorate-dev/quorate/etcdops/backup/lone"
	"github.com/quorate-dev/quorate/hooks/snapshot"
)

const (
	// trialTime is for its etcd to serve: it reads all keys first.
	trialTime = 15 * time.Minute
	// ownMemory is what is left to this process of the memory that its container may have, in bytes.
	ownMemory = 64 << 20
)

// trial starts etcd on a restored data directory, waits until it serves, and compares what it says of its keys with
// what is in the database. Where the database alone did not tell, it is filled in.
//
// What etcd reads when it starts is more than keys: it ends in a panic over a lease, a user or a role that it can't
// read.
func (o Order) trial(ctx context.Context, dataDir, dir string, holds *Contents) error {
	e := lone.Etcd{Program: o.Etcd, DataDir: dataDir, Dir: dir, Secure: true, Env: o.memory()}
	// what etcd's client takes for the name of a server at a socket
	config, flags, err := rootOnly(dir, filepath.Base(e.Socket()))
	if err != nil {
		return localFailure(err, dir)
	}
	e.Flags = flags
	answered := false
	err = e.Run(ctx, func(ctx context.Context) error {
		err := askTrial(ctx, e.Socket(), config, holds)
		answered = err == nil
		return err
	})
	var ended *lone.Ended
	var own *reasonedError
	switch {
	case err == nil, errors.As(err, &own):
		return err
	case errors.As(err, &ended) && answered:
		return nil // how it ends says nothing of the data
	case errors.As(err, &ended) && ended.Killed && ctx.Err() == nil:
		return outOfMemory("etcd was killed while it starts", holds)
	case errors.As(err, &ended):
		return o.failed(ctx, "etcd", "starts on the restored snapshot", ended)
	}
	return o.failed(ctx, "etcd", "starts on the restored snapshot", &lone.Ended{Said: &lone.Words{}, Err: err})
}

// askTrial asks the etcd on trial for its keys and their hash at the revision of the database.
func askTrial(ctx context.Context, socket string, config *tls.Config, holds *Contents) error {
	serves, stop := context.WithTimeout(ctx, trialTime)
	defer stop()
	soon := backoff.Config{BaseDelay: pollTime / 4, Multiplier: 1.5, MaxDelay: time.Second}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"unixs://" + socket}, TLS: config, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon,
			MinConnectTimeout: keepAliveTimeout})},
	})
	if err != nil {
		return failure(Failed, byEtcd(err), "no client for the etcd on trial")
	}
	defer client.Close()
	for {
		// A linearizable read: it is answered once there is a leader, which has applied all that is in the log.
		if _, err = client.Get(serves, "\x00", clientv3.WithCountOnly()); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return failure(Failed, ctx.Err(), "stopped while etcd was to serve the restored snapshot")
		case <-serves.Done():
			return failure(Failed, byEtcd(err), "etcd does not serve on the restored snapshot within %s", trialTime)
		case <-time.After(pollTime / 4):
		}
	}
	count, err := client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly(),
		clientv3.WithRev(holds.Revision))
	if err != nil {
		return failure(Failed, byEtcd(err), "the etcd on trial does not count its keys")
	}
	hash, err := pb.NewMaintenanceClient(client.ActiveConnection()).HashKV(ctx,
		&pb.HashKVRequest{Revision: holds.Revision})
	if err != nil {
		return failure(Failed, byEtcd(err), "the etcd on trial does not tell the hash of its keys")
	}
	return holds.agree(count.Count, fmt.Sprintf("%08x", hash.GetHash()), max(hash.GetCompactRevision(), 0))
}

// agree compares what is in a database with what etcd says of it, and fills in what the database alone did not tell.
// Two ways to read the same bytes disprove nothing, but one of them is wrong.
func (c *Contents) agree(keys int64, hash string, compacted int64) error {
	if c.Keys < 0 {
		c.Keys = keys
	}
	if c.Hash == "" && compacted == c.CompactRevision {
		c.Hash = hash
	}
	switch {
	case c.Keys != keys:
		return failure(Differs, nil, "etcd counts %d keys in the restored snapshot, and %d are in its history", keys,
			c.Keys)
	case compacted == c.CompactRevision && c.Hash != hash:
		return failure(Differs, nil, "the restored snapshot has the hash %s in etcd, and %s in its record", hash,
			c.Hash)
	}
	return nil
}

// memory is the environment that lets a program of etcd have what this process does not need of the memory of both;
// empty without a limit.
func (o Order) memory() []string {
	limit, err := strconv.ParseInt(os.Getenv("GOMEMLIMIT"), 10, 64)
	if err != nil {
		return nil
	}
	return []string{fmt.Sprintf("GOMEMLIMIT=%d", max(limit-ownMemory, limit/2))}
}

const (
	// recordMemory is what an etcd on trial takes for each record at most, in bytes: its place in the index, and as
	// much again as garbage.
	recordMemory = 400
	// memoryStep is what limits that are advised are multiples of.
	memoryStep = 64 << 20
)

// outOfMemory says that a trial was killed, and the limit of memory with which it should not be: half as much again
// as it had at least.
func outOfMemory(what string, holds *Contents) error {
	enough := snapshot.JobMemory + recordMemory*holds.Records
	if limit, err := strconv.ParseInt(os.Getenv("GOMEMLIMIT"), 10, 64); err == nil {
		enough = max(enough, limit/6*10) // GOMEMLIMIT is nine tenths of the limit
	}
	records := fmt.Sprintf("%d records", holds.Records)
	if holds.Keys >= 0 {
		records = fmt.Sprintf("%d keys in %s", holds.Keys, records)
	}
	return failure(Failed, nil, "%s on the restored snapshot, most likely because it was out of memory: there are %s; "+
		"set spec.job.resources.limits.memory to %dMi",
		what, records, (enough+memoryStep-1)/memoryStep*memoryStep>>20)
}

// rootOnly makes a certificate by which a client is etcd's user root, where the data has users, and etcd a server
// that such clients trust. It is good for both, signs itself, and lives as long as the directory. The flags make etcd
// use it. Name is that of the server.
func rootOnly(dir, name string) (*tls.Config, []string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "root"}, DNSNames: []string{name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	certificate := filepath.Join(dir, "root.crt")
	private := filepath.Join(dir, "root.key")
	err = errors.Join(
		os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600),
	)
	if err != nil {
		return nil, nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool(), ServerName: name,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	config.RootCAs.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return config, []string{"--cert-file=" + certificate, "--key-file=" + private, "--trusted-ca-file=" + certificate,
		"--client-cert-auth=true"}, nil
}
