package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/objects"
)

const (
	clusterName = "demo"
	clusterUID  = types.UID("uid")
	clusterID   = 1
)

func name(n int) string { return names[n] }

var names = func() (all [maxMembers]string) {
	for n := range all {
		all[n] = objects.MemberName(clusterName, n)
	}
	return all
}()

func number(member string) uint8 {
	n, err := strconv.Atoi(strings.TrimPrefix(member, clusterName+"-"))
	if err != nil || n >= maxMembers {
		panic(fmt.Sprintf("%q: the model has no room for it, or it is no member's name", member))
	}
	return uint8(n)
}

// memberID of member n in etcd.
func memberID(n int) uint64 { return uint64(n) + 1 }

func hexID(n int) string { return strconv.FormatUint(memberID(n), 16) }

func podUID(n int, uid uint8) types.UID   { return types.UID(fmt.Sprintf("pod/%d/%d", n, uid)) }
func claimUID(n int, uid uint8) types.UID { return types.UID(fmt.Sprintf("claim/%d/%d", n, uid)) }

// versions that the spec may ask for, by these numbers.
var releases = []string{"3.6.16", "3.6.17", "3.7.3", "3.5.35", "3.6.18"}

const (
	usualVersion uint8 = iota
	patchRelease
	nextMinor
	minorBefore
	unpullable // there is no image of it
)

func versionOf(s string) uint8 {
	n := slices.Index(releases, s)
	if n < 0 {
		panic(fmt.Sprintf("the model does not know version %q", s))
	}
	return uint8(n)
}

func tagOf(image string) string { return image[strings.LastIndex(image, ":v")+2:] }

// minor version of 3.
func minor(version string) uint8 { return version[2] - '0' }

func minorOf(version uint8) uint8 { return minor(releases[version]) }

// oldFlags reports whether the version is started with other flags than those from 3.6 on.
func oldFlags(version uint8) bool { return minorOf(version) < 6 }

// unplaced is a template of which no node takes a pod.
const unplaced = 2

func template(n uint8) string { return []string{"", "other", "nowhere"}[n] }
