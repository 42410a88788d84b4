// Package rescue starts members of an EtcdCluster on their nodes without Kubernetes: for the day that all nodes of a
// Kubernetes were off whose API server has its data in one. Kubelets are given no pods without an API server, except
// static ones: it writes one for each member, on the member's node.
package rescue

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/seed"
	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/etcdops/datadir"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

const usage = `Starts the members of an EtcdCluster on their nodes without Kubernetes:
` + v1beta1.Docs + `how-to/self-hosted.md

Usage:
  quorate-snapshot rescue list [--path DIRECTORY]   what the members' directories on this node hold; nothing is changed
  quorate-snapshot rescue start --dir DIRECTORY --image IMAGE   write a static pod that runs the member of a directory
  quorate-snapshot rescue begin --address IP --image IMAGE --dir DIRECTORY | --snapshot FILE   a new etcd of one member,
      where too few directories for a quorum are left
`

// Run is the command quorate-snapshot rescue; the result is its exit code.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "list":
			return exitCode(list(args[1:], stdout, stderr), stderr)
		case "start":
			return exitCode(start(args[1:], stdout, stderr), stderr)
		case "begin":
			return exitCode(begin(ctx, args[1:], stdout, stderr), stderr)
		}
	}
	fmt.Fprint(stderr, usage)
	return command.Usage
}

func exitCode(err error, stderr io.Writer) int {
	return command.ExitCode("quorate-snapshot rescue", err, stderr)
}

// member is a member's directory, and what it holds.
type member struct {
	// dir is the directory of the member, which has its data directory.
	dir string
	// name of the member, by its directory.
	name string
	// clusterID and id are etcd's, in hexadecimal.
	clusterID, id string
	// term and index are those of the last entry.
	term, index uint64
	size        int64
	// all are the members as this one lists them.
	all []seed.Listed
	err error
}

// dataDir is etcd's data directory in a member's.
func dataDir(dir string) string { return filepath.Join(dir, "data") }

func list(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("quorate-snapshot rescue list", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("path", "/var/lib/etcd-data", "`directory` that spec.storage.hostPath.path names")
	if err := command.Parse(flags, args); err != nil {
		return err
	}
	found, err := find(*path)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("no member of an EtcdCluster has its directory in %s: give the one that "+
			"spec.storage.hostPath.path names, on a node that spec.hostNetwork.nodes names", *path)
	}
	slices.SortStableFunc(found, func(a, b member) int { return strings.Compare(a.clusterID, b.clusterID) })
	return show(found, stdout)
}

// find looks for members' directories: <path>/<namespace>-<name>-<uid>/<member>/data.
func find(path string) ([]member, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("the directory %s can't be read: %w", path, cause(err))
	}
	dirs, err := filepath.Glob(filepath.Join(path, "*", "*-*", "data"))
	if err != nil {
		return nil, fmt.Errorf("the directory %s can't be searched: its name has characters of a pattern", path)
	}
	var found []member
	for _, dir := range dirs {
		if log, err := datadir.HasLog(dir, ""); err == nil && log {
			found = append(found, read(filepath.Dir(dir)))
		}
	}
	return found, nil
}

// cause is an error of the file system without its path, which was said.
func cause(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

func read(dir string) member {
	m := member{dir: dir, name: filepath.Base(dir)}
	inspection, err := seed.Inspection(dataDir(dir), "")
	if err == nil {
		m.all, err = seed.List(dataDir(dir))
	}
	m.clusterID = inspection.ClusterID
	m.id = inspection.MemberID
	m.term = inspection.LastTerm
	m.index = inspection.LastIndex
	m.size = inspection.DBSize
	if err != nil {
		m.err = errors.New(archive.Words(err))
	}
	return m
}

// own is the member itself, as it lists itself.
func (m member) own() (seed.Listed, bool) {
	id, err := strconv.ParseUint(m.id, 16, 64)
	i := slices.IndexFunc(m.all, func(l seed.Listed) bool { return l.ID == id })
	if err != nil || i < 0 {
		return seed.Listed{}, false
	}
	return m.all[i], true
}

func show(found []member, stdout io.Writer) error {
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MEMBER\tCLUSTER\tTERM\tINDEX\tSIZE\tDIRECTORY")
	for _, m := range found {
		if m.err != nil {
			fmt.Fprintf(t, "%s\t-\t-\t-\t-\t%s\n", m.name, m.dir)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d MB\t%s\n", m.name, m.clusterID, m.term, m.index, m.size/1_000_000, m.dir)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if ids := clusters(found); len(ids) > 1 {
		fmt.Fprintf(stdout, "They are of %d etcd clusters (%s). TERM and INDEX say which directory is ahead within one "+
			"CLUSTER; between two they say nothing: the higher ones may be of one that was replaced long ago.\n", len(ids),
			strings.Join(ids, ", "))
	}
	for _, m := range found {
		switch _, listed := m.own(); {
		case m.err != nil:
			fmt.Fprintf(stdout, "%s: %s\n", m.name, m.err)
		case !listed:
			fmt.Fprintf(stdout, "%s is no longer a member: it was removed. Do not start it.\n", m.name)
		default:
			fmt.Fprintf(stdout, "%s lists %s; %d of them are a quorum.\n", m.name, strings.Join(names(m.all), ", "),
				voters(m.all)/2+1)
		}
	}
	return nil
}

// clusters are the IDs of the etcds that the directories are of, sorted.
func clusters(found []member) []string {
	var ids []string
	for _, m := range found {
		if m.err == nil {
			ids = append(ids, m.clusterID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func names(all []seed.Listed) []string {
	var list []string
	for _, m := range all {
		words := m.Name
		if m.Learner {
			words += " (learner)"
		}
		list = append(list, words)
	}
	return list
}

func voters(all []seed.Listed) int {
	return len(slices.DeleteFunc(slices.Clone(all), func(m seed.Listed) bool { return m.Learner }))
}
