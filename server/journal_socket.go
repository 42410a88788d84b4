package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// Entries are read from the process that keeps them through a socket that only its own user reaches, from within its
// pod: who may run a command there may read them (`quorate journal`).

// JournalAsked is what is asked for on that socket, as one JSON object; empty for all.
type JournalAsked struct {
	Namespace, Name string
}

// JournalSocket is where the server whose hooks listen at this address is asked for entries. It has no file: see
// unix(7), abstract.
func JournalSocket(hooks string) (string, error) {
	_, port, err := net.SplitHostPort(hooks)
	if err != nil {
		return "", err
	}
	return "@quorate-journal:" + port, nil
}

// journalFor is how long one who asks may take.
const journalFor = 30 * time.Second

// ServeJournal answers on that socket, one after the other, until ctx ends.
func (s *Server) ServeJournal(ctx context.Context, socket net.Listener) {
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })()
	for ctx.Err() == nil {
		conn, err := socket.Accept()
		if err != nil {
			return
		}
		if err := s.tellJournal(conn); err != nil {
			s.log.Warn("entries were not told whole", "error", err)
		}
		_ = conn.Close()
	}
}

func (s *Server) tellJournal(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(journalFor)); err != nil {
		return err
	}
	if err := sameUser(conn); err != nil {
		return err
	}
	var asked JournalAsked
	if err := json.NewDecoder(io.LimitReader(conn, 1<<12)).Decode(&asked); err != nil {
		return fmt.Errorf("the question can't be read: %w", err)
	}
	return s.journal.write(conn, asked.Namespace, asked.Name)
}

// AskJournal copies what the server tells that listens on this socket.
func AskJournal(ctx context.Context, socket string, asked JournalAsked, out io.Writer) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("no quorate serve keeps entries here: %w; run this command in a pod of Quorate's", err)
	}
	defer func() { _ = conn.Close() }()
	if err := json.NewEncoder(conn).Encode(asked); err != nil {
		return err
	}
	_, err = io.Copy(out, conn)
	return err
}
