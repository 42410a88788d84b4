package etcdops

import (
	"fmt"
	"unicode"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// What answers at an address may be no etcd: the image of a member and the endpoints of another etcd are a tenant's
// choice, and one process asks for all tenants. An answer has the size that an etcd's can have, or is none.
const (
	// largestAnswer is in bytes, of one message without its compression. A list of 100 members takes some 20 KiB.
	largestAnswer = 64 << 10
	// largestList is the same for the names of all users, and of all roles: some 8,000.
	largestList = 256 << 10
	// largestHeaders is in bytes, of what is sent before and behind an answer, the text of an error among it.
	largestHeaders = 16 << 10
	// mostMembers is far above the 7 voters that etcd recommends at most (etcd.io/docs/v3.6/faq).
	mostMembers = 64
	// mostURLs is how many URLs of one kind a member has at most.
	mostURLs = 16
	// longestURL and longestWord are in bytes: of a URL or name of a member, and of a version.
	longestURL, longestWord = 1024, 64
	// mostErrors is how many lines Status has at most: etcd has three kinds of alarms, a line for each of them and
	// member, and two lines more (Status in etcd's etcdserver/api/v3rpc/maintenance.go).
	mostErrors = 3*mostMembers + 2
)

// bounded says what about a member list no etcd would say.
func bounded(members []*pb.Member) error {
	if len(members) > mostMembers {
		return fmt.Errorf("%w: it lists %d members, and %d are the most", ErrOtherEtcd, len(members), mostMembers)
	}
	for _, m := range members {
		if len(m.GetPeerURLs()) > mostURLs || len(m.GetClientURLs()) > mostURLs {
			return fmt.Errorf("%w: it lists member %x with more than %d URLs", ErrOtherEtcd, m.GetID(), mostURLs)
		}
		for _, words := range [][]string{{m.GetName()}, m.GetPeerURLs(), m.GetClientURLs()} {
			for _, word := range words {
				if !plain(word, longestURL) {
					return fmt.Errorf("%w: the name or a URL of member %x is longer than %d bytes, or can't be printed",
						ErrOtherEtcd, m.GetID(), longestURL)
				}
			}
		}
	}
	return nil
}

// boundedStatus says what about a status no etcd would say.
func boundedStatus(s *pb.StatusResponse) error {
	if len(s.GetErrors()) > mostErrors {
		return fmt.Errorf("%w: its status has %d errors, and %d are the most", ErrOtherEtcd, len(s.GetErrors()),
			mostErrors)
	}
	for _, line := range s.GetErrors() {
		if !plain(line, longestURL) {
			return fmt.Errorf("%w: an error in its status is longer than %d bytes, or can't be printed", ErrOtherEtcd,
				longestURL)
		}
	}
	for _, version := range []string{s.GetVersion(), s.GetStorageVersion(), s.GetDowngradeInfo().GetTargetVersion()} {
		if !plain(version, longestWord) {
			return fmt.Errorf("%w: a version in its status is longer than %d bytes, or can't be printed", ErrOtherEtcd,
				longestWord)
		}
	}
	return nil
}

// plain reports whether a word has at most so many bytes, all of them of characters that can be printed.
func plain(word string, most int) bool {
	if len(word) > most {
		return false
	}
	for _, r := range word {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
