package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func at(call, back int) (time.Duration, time.Duration) {
	return time.Duration(call) * time.Second, time.Duration(back) * time.Second
}

func put(value string, call, back int) Op {
	c, r := at(call, back)
	return Op{Client: 1, Key: "k", Verb: Put, Value: value, Known: true, Call: c, Return: r}
}

func get(read string, call, back int) Op {
	c, r := at(call, back)
	return Op{Client: 2, Key: "k", Verb: Get, Read: read, Known: true, Call: c, Return: r}
}

func swap(expected, value string, call, back int) Op {
	c, r := at(call, back)
	return Op{Client: 3, Key: "k", Verb: Swap, Expected: expected, Value: value, Swapped: true, Known: true, Call: c,
		Return: r}
}

func missed(expected, value, read string, call, back int) Op {
	o := swap(expected, value, call, back)
	o.Swapped, o.Read = false, read
	return o
}

func deletion(call, back int) Op {
	o := put("", call, back)
	o.Verb = Delete
	return o
}

func unknown(o Op) Op {
	o.Known, o.Swapped, o.Read = false, false, ""
	return o
}

func TestHistory(t *testing.T) {
	for name, story := range map[string]struct {
		ops []Op
		is  bool
	}{
		"nothing":               {nil, true},
		"a write is read":       {[]Op{put("a", 0, 1), get("a", 2, 3)}, true},
		"a write is lost":       {[]Op{put("a", 0, 1), get("", 2, 3)}, false},
		"a newer write is lost": {[]Op{put("a", 0, 1), put("b", 2, 3), get("a", 4, 5)}, false},
		"a read during the write may see it or not": {[]Op{put("a", 0, 4), get("", 1, 2), get("a", 2, 3)}, true},
		"once read, it stays":                       {[]Op{put("a", 0, 5), get("a", 1, 2), get("", 3, 4)}, false},
		"an unknown write never happened":           {[]Op{put("a", 0, 1), unknown(put("b", 2, 3)), get("a", 4, 5)}, true},
		"an unknown write happens late": {[]Op{put("a", 0, 1), unknown(put("b", 2, 3)), get("a", 4, 5),
			get("b", 6, 7)}, true},
		"an unknown write happens and goes again": {[]Op{put("a", 0, 1), unknown(put("b", 2, 3)), get("b", 4, 5),
			get("a", 6, 7)}, false},
		"a value is read before it is written": {[]Op{get("b", 0, 1), unknown(put("b", 2, 3))}, false},
		"a value out of nowhere":               {[]Op{get("x", 0, 1)}, false},
		"a swap":                               {[]Op{put("a", 0, 1), swap("a", "b", 2, 3), get("b", 4, 5)}, true},
		"two swaps of one value":               {[]Op{put("a", 0, 1), swap("a", "b", 2, 5), swap("a", "c", 2, 5)}, false},
		"a swap of an absent key":              {[]Op{swap("", "a", 0, 1), get("a", 2, 3)}, true},
		"a swap that missed":                   {[]Op{put("b", 0, 1), missed("a", "c", "b", 2, 3), get("b", 4, 5)}, true},
		"a swap that missed for no reason":     {[]Op{put("a", 0, 1), missed("a", "c", "a", 2, 3)}, false},
		"a swap met a write of unknown outcome": {[]Op{put("a", 0, 1), unknown(put("b", 2, 3)),
			missed("a", "c", "b", 4, 5)}, true},
		"an unknown swap happened": {[]Op{put("a", 0, 1), unknown(swap("a", "b", 2, 3)), get("b", 4, 5)}, true},
		"an unknown swap of what was not there": {[]Op{put("a", 0, 1), put("c", 2, 3),
			unknown(swap("a", "b", 4, 5)), get("b", 6, 7)}, false},
		"a swap of what an unknown write left": {[]Op{unknown(put("a", 0, 1)), swap("a", "b", 4, 5)}, true},
		"a deletion":                           {[]Op{put("a", 0, 1), deletion(2, 3), get("", 4, 5)}, true},
		"a deletion is lost":                   {[]Op{put("a", 0, 1), deletion(2, 3), get("a", 4, 5)}, false},
		"an unknown deletion happens late": {[]Op{get("", 0, 1), put("a", 2, 3), unknown(deletion(4, 5)),
			get("a", 6, 7), get("", 8, 9)}, true},
		"an unknown deletion never happens":            {[]Op{put("a", 0, 1), unknown(deletion(2, 3)), get("a", 4, 5)}, true},
		"a write goes before the deletion":             {[]Op{put("a", 0, 1), get("", 2, 3), unknown(deletion(4, 5))}, false},
		"an unknown write after the swap that read it": {[]Op{swap("a", "b", 0, 1), unknown(put("a", 2, 3))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var h History
			for _, op := range story.ops {
				h.Add(op)
			}
			err := h.Check(time.Minute)
			assert.Equal(t, story.is, err == nil, "%v", err)
		})
	}
}
