package server

import (
	"fmt"
	"log/slog"
	"strings"
)

// RecordKeys are by what records are sealed: who may write ConfigMaps and does not know them can't forge one. The file
// is read again when it changes. Make them with NewRecordKeys.
type RecordKeys struct{ keys *reread[[][]byte] }

// leastKey is the fewest characters of a key. quorate install makes them of 43, which is 256 bits: a seal can be seen
// by all who may read ConfigMaps, and a short key guessed by it.
const leastKey = 32

// NewRecordKeys reads the file: a key on a line. The first seals, and what any has sealed is believed. None for no
// name.
func NewRecordKeys(file string, log *slog.Logger) (*RecordKeys, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // none
	}
	keys, err := newReread(log, func(contents [][]byte) ([][]byte, error) {
		all, err := parseKeys(string(contents[0]))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return all, nil
	}, file)
	if err != nil {
		return nil, fmt.Errorf("--record-keys: %w", err)
	}
	return &RecordKeys{keys: keys}, nil
}

func parseKeys(text string) ([][]byte, error) {
	var all [][]byte
	for _, line := range strings.Fields(text) {
		if len(line) < leastKey {
			return nil, fmt.Errorf("a key has %d characters at least; openssl rand -hex 32 makes a good one", leastKey)
		}
		all = append(all, []byte(line))
	}
	if len(all) == 0 {
		return nil, errNothing
	}
	return all, nil
}

func (k *RecordKeys) get() [][]byte {
	if k == nil {
		return nil
	}
	return k.keys.get()
}
