package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// Records are read from the process that keeps them through a socket that only its own user reaches, from within its
// pod: who may run a command there may read them (`quorate records`).

// RecordsAsked is what is asked for on that socket, as one JSON object; empty for all.
type RecordsAsked struct {
	Namespace, Name string
}

// RecordsSocket is where the server whose hooks listen at this address is asked for records. It has no file: see
// unix(7), abstract.
func RecordsSocket(hooks string) (string, error) {
	_, port, err := net.SplitHostPort(hooks)
	if err != nil {
		return "", err
	}
	return "@quorate-records:" + port, nil
}

// recordsFor is how long one who asks may take.
const recordsFor = 30 * time.Second

// ServeRecords answers on that socket, one after the other, until ctx ends.
func (s *Server) ServeRecords(ctx context.Context, socket net.Listener) {
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })()
	for ctx.Err() == nil {
		conn, err := socket.Accept()
		if err != nil {
			return
		}
		if err := s.tellRecords(conn); err != nil {
			s.log.Warn("records were not told whole", "error", err)
		}
		_ = conn.Close()
	}
}

func (s *Server) tellRecords(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(recordsFor)); err != nil {
		return err
	}
	if err := sameUser(conn); err != nil {
		return err
	}
	var asked RecordsAsked
	if err := json.NewDecoder(io.LimitReader(conn, 1<<12)).Decode(&asked); err != nil {
		return fmt.Errorf("the question can't be read: %w", err)
	}
	return s.records.write(conn, asked.Namespace, asked.Name)
}

// AskRecords copies what the server tells that listens on this socket.
func AskRecords(ctx context.Context, socket string, asked RecordsAsked, out io.Writer) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("no quorate serve keeps records here: %w; run this command in a pod of Quorate's", err)
	}
	defer func() { _ = conn.Close() }()
	if err := json.NewEncoder(conn).Encode(asked); err != nil {
		return err
	}
	_, err = io.Copy(out, conn)
	return err
}
