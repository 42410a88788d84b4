package rescue

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/seed"
	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// beginning is a new etcd of one member, made of what is left of one that has lost its quorum for good.
type beginning struct {
	order
	// snapshot and identity are files; the snapshot is instead of the directory of a member.
	snapshot, identity string
	to, name           string
	// programs is the directory of etcd and etcdutl.
	programs             string
	address              string
	clientPort, peerPort int
}

// begin makes a data directory of a new cluster, and the static pod that runs it. It is a new cluster also for etcd,
// with an ID of its own: a directory of the old one that turns up later can't meet it. Revisions begin above all that
// API servers may have seen, so that these list what they watch again.
func begin(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var b beginning
	flags := flag.NewFlagSet("quorate-snapshot rescue begin", flag.ContinueOnError)
	flags.SetOutput(stderr)
	b.order.flags(flags)
	flags.StringVar(&b.dir, "dir", "", "`directory` of the member that is ahead, as list prints it; it is not changed")
	flags.StringVar(&b.snapshot, "snapshot", "", "`file` of a snapshot, instead of --dir: one that etcdctl has saved, "+
		"or one of an EtcdSnapshot, with its .json beside it")
	flags.StringVar(&b.identity, "identity", "", "`file` with age identities, for an encrypted snapshot")
	flags.StringVar(&b.to, "to", "/var/lib/etcd-rescued", "`directory` of the new member, which is created")
	flags.StringVar(&b.programs, "programs", "/usr/local/bin", "`directory` of etcd and etcdutl, of the image's "+
		"version")
	flags.StringVar(&b.address, "address", "", "IP `address` of this node; required")
	flags.IntVar(&b.clientPort, "client-port", 2379, "`port` for clients")
	flags.IntVar(&b.peerPort, "peer-port", 2380, "`port` for peers")
	if err := command.Parse(flags, args); err != nil {
		return err
	}
	if err := b.valid(); err != nil {
		return err
	}
	report, file, err := b.make(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("nothing was begun: %s", archive.Words(err)), os.RemoveAll(b.to))
	}
	at := b.place()
	fmt.Fprintf(stdout, "The static pod rescue-%s (%s) will run a new etcd with %d keys, at revision %d. Give each "+
		"API server its address:\n\n  --etcd-servers=%s\n\nThen follow "+v1beta1.Docs+"how-to/self-hosted.md: delete the "+
		"EtcdCluster whose members are lost, and move into a new one.\n", b.name, file, report.Keys, report.Revision, at.clientURL)
	return nil
}

// make fills the directory and writes the static pod. What an error leaves, the caller removes.
func (b *beginning) make(ctx context.Context) (report stores.Restore, file string, err error) {
	if report, err = b.restore(ctx); err != nil {
		return report, "", err
	}
	m := member{dir: b.to, name: b.name}
	at := b.place()
	if err = errors.Join(ownedByEtcd(b.to), b.certify(m, at)); err == nil {
		file, err = b.write(m, at)
	}
	return report, file, err
}

func (b *beginning) valid() error {
	switch {
	case (b.dir == "") == (b.snapshot == ""):
		return errors.New("one of --dir and --snapshot is required, and only one: what to begin with")
	case b.image == "" || b.address == "":
		return errors.New("--image and --address are required: an image of etcd that is on this node, and the IP " +
			"address of this node")
	case net.ParseIP(b.address) == nil:
		return fmt.Errorf("--address is %q, which is not an IP address", b.address)
	}
	if entries, err := os.ReadDir(b.to); err == nil && len(entries) > 0 || err != nil && !errors.Is(err,
		fs.ErrNotExist) {
		return fmt.Errorf("the directory %s is not empty, or can't be read: give another one with --to", b.to)
	}
	if _, _, _, err := authority(b.caCert, b.caKey); err != nil {
		return err
	}
	b.name = filepath.Base(b.to)
	return nil
}

// place is where the new member listens.
func (b *beginning) place() place {
	client := strconv.Itoa(b.clientPort)
	peer := strconv.Itoa(b.peerPort)
	return place{address: b.address, clientPort: client, peerPort: peer, tls: true,
		clientURL: "https://" + net.JoinHostPort(b.address, client),
		peerURL:   "https://" + net.JoinHostPort(b.address, peer)}
}

var versionLine = regexp.MustCompile(`etcd Version: ([0-9.]+)`)

// restore fills the data directory, or does nothing.
func (b *beginning) restore(ctx context.Context) (stores.Restore, error) {
	programs := seed.Programs{Etcd: filepath.Join(b.programs, "etcd"), Etcdutl: filepath.Join(b.programs, "etcdutl")}
	said, err := exec.CommandContext(ctx, programs.Etcd, "--version").Output()
	version := versionLine.FindSubmatch(said)
	if err != nil || version == nil {
		return stores.Restore{}, archive.OwnWords("%s does not run: name the directory of etcd and etcdutl with "+
			"--programs",
			programs.Etcd)
	}
	if !strings.HasSuffix(b.image, ":v"+string(version[1])) {
		return stores.Restore{}, archive.OwnWords("%s is etcd %s, and --image does not end in :v%s: both must be the "+
			"same release", programs.Etcd, version[1], version[1])
	}
	peerURL := b.place().peerURL
	o := seed.Options{DataDir: dataDir(b.to), Name: b.name, PeerURL: peerURL, InitialCluster: b.name + "=" + peerURL,
		Token: rand.Text(), EtcdVersion: string(version[1]), Programs: programs,
		BeginAfter: new(int64(0))}
	if b.dir != "" {
		m := read(filepath.Clean(b.dir))
		if _, listed := m.own(); m.err == nil && !listed {
			return stores.Restore{}, archive.OwnWords("%s was removed from its cluster and does not have what was "+
				"written after that: use another directory", m.name)
		}
		o.FromData = dataDir(m.dir)
		return seed.Restore(ctx, o)
	}
	from := archive.Source{URL: "file:///" + filepath.Base(b.snapshot), StoreDir: filepath.Dir(b.snapshot),
		IdentityFile: b.identity}
	if o.Size, err = archive.SizeOf(ctx, from); err != nil {
		return stores.Restore{}, err
	}
	o.Fetch = func(ctx context.Context, to string) (*stores.Artifact, error) { return archive.Fetch(ctx, from, to) }
	return seed.Restore(ctx, o)
}

// ownedByEtcd gives a tree, which this program has just made, to the user that etcd runs as. No link leads out of it.
func ownedByEtcd(dir string) error {
	root, err := os.OpenRoot(dir)
	if err == nil {
		defer root.Close()
		err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return root.Lchown(path, objects.UserID, objects.UserID)
		})
	}
	if err != nil {
		return fmt.Errorf("%s can't be given to etcd's user: %w; run this as root", dir, cause(err))
	}
	return nil
}
