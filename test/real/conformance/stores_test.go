//go:build unix && releases

package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gocloud.dev/blob"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	commands "github.com/quorate-dev/quorate/etcdops/backup/snapshot"
	"github.com/quorate-dev/quorate/etcdops/backup/stream"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/stores"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// way is a proxy before a store: it speaks TLS where that is wanted, and can do something once so many bytes went to
// the store.
type way struct {
	*httptest.Server
	left atomic.Int64
	then atomic.Pointer[func()]
}

func wayTo(t *testing.T, target string, secure *tls.Config) *way {
	t.Helper()
	to, err := url.Parse(target)
	require.NoError(t, err)
	w := &way{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // it is signed
			if r.Out.Body != nil {
				r.Out.Body = &toll{r.Out.Body, w}
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	w.Server = httptest.NewUnstartedServer(proxy)
	if secure != nil {
		w.TLS = secure.Clone()
		w.StartTLS()
	} else {
		w.Start()
	}
	t.Cleanup(w.Close)
	return w
}

// after has f called once so many bytes have passed; nil for never.
func (w *way) after(n int64, f func()) {
	w.left.Store(n)
	if f == nil {
		w.then.Store(nil)
		return
	}
	w.then.Store(&f)
}

type toll struct {
	io.ReadCloser
	way *way
}

func (b *toll) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.way.left.Add(-int64(n)) < 0 {
		if f := b.way.then.Swap(nil); f != nil {
			(*f)()
		}
	}
	return n, err
}

// serve runs a server of a store until the test ends, and waits until it listens.
func serve(t *testing.T, address, binary string, args ...string) {
	t.Helper()
	var said bytes.Buffer
	process := exec.Command(binary, args...)
	process.Stdout, process.Stderr = &said, &said
	require.NoError(t, process.Start())
	t.Cleanup(func() {
		_ = process.Process.Signal(syscall.SIGKILL)
		_ = process.Wait()
		if t.Failed() {
			t.Logf("%s: %.4000s", binary, said.String())
		}
	})
	etcdproc.Eventually(t, binary+" listens", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	})
}

// s3Query are the parameters of a server that is not Amazon's; its address follows.
const s3Query = "?region=us-east-1&use_path_style=true&endpoint="

// serveS3 starts a server that speaks S3, with an empty bucket called backups. Locked, the bucket has S3's object lock.
func serveS3(t *testing.T, locked bool, options ...string) (address string, client *s3.Client) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "testuser")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "a secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	address = fmt.Sprintf("127.0.0.1:%d", etcdproc.Port(t))
	args := append([]string{"--port", address, "--access", "testuser", "--secret", "a secret", "--quiet", "posix",
		"--sidecar", t.TempDir()}, options...)
	serve(t, "http://"+address, etcdproc.Tool(t, "versitygw"), append(args, t.TempDir())...)
	// A way's certificate is not trusted before the first store is opened: the bucket is made beside it.
	bucket, err := blob.OpenBucket(context.Background(), "s3://backups"+s3Query+"http://"+address)
	require.NoError(t, err)
	require.True(t, bucket.As(&client))
	name := "backups"
	_, err = client.CreateBucket(context.Background(), &s3.CreateBucketInput{Bucket: &name,
		ObjectLockEnabledForBucket: &locked})
	require.NoError(t, err)
	return address, client
}

// servers are those that speak what stores in clouds speak: a name, and what makes one with an empty bucket
// called backups.
var servers = map[string]func(t *testing.T, a authority) (place archive.Place, way *way){
	"s3": func(t *testing.T, a authority) (archive.Place, *way) {
		address, _ := serveS3(t, false)
		way := wayTo(t, "http://"+address, a.servers)
		return archive.Place{URL: "s3://backups/etcd" + s3Query + way.URL, CAFile: a.file}, way
	},
	"another s3": func(t *testing.T, a authority) (archive.Place, *way) {
		address := os.Getenv("QUORATE_S3_ENDPOINT")
		if address == "" {
			t.Skip("QUORATE_S3_ENDPOINT is no address of a server, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
		}
		way := wayTo(t, address, a.servers)
		bucket := "quorate-" + strings.ToLower(rand.Text())
		created, err := blob.OpenBucket(context.Background(), "s3://"+bucket+s3Query+address)
		require.NoError(t, err)
		var client *s3.Client
		require.True(t, created.As(&client))
		_, err = client.CreateBucket(context.Background(), &s3.CreateBucketInput{Bucket: &bucket})
		require.NoError(t, err)
		const without = "&request_checksum_calculation=when_required&response_checksum_validation=when_required"
		return archive.Place{URL: "s3://" + bucket + "/etcd" + s3Query + way.URL + without, CAFile: a.file}, way
	},
	"gs": func(t *testing.T, a authority) (archive.Place, *way) {
		address, root := fmt.Sprintf("127.0.0.1:%d", etcdproc.Port(t)), t.TempDir()
		_, port, _ := strings.Cut(address, ":")
		way := wayTo(t, "http://"+address, nil)
		require.NoError(t, os.Mkdir(filepath.Join(root, "backups"), 0o750))
		serve(t, "http://"+address, etcdproc.Tool(t, "fake-gcs-server"), "-scheme", "http", "-host", "127.0.0.1",
			"-port", port,
			"-filesystem-root", root, "-external-url", way.URL, "-public-host", strings.TrimPrefix(way.URL, "http://"),
			"-log-level", "error")
		t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(way.URL, "http://"))
		return archive.Place{URL: "gs://backups/etcd", CAFile: a.file}, way
	},
	"azblob": func(t *testing.T, a authority) (archive.Place, *way) {
		azurite, err := exec.LookPath("azurite-blob")
		if err != nil {
			t.Skip("azurite-blob is not in the PATH (npm install azurite)")
		}
		// The account that Azurite is born with (README of azurite).
		t.Setenv("AZURE_STORAGE_ACCOUNT", "devstoreaccount1")
		t.Setenv("AZURE_STORAGE_KEY",
			"Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==")
		address := fmt.Sprintf("127.0.0.1:%d", etcdproc.Port(t))
		_, port, _ := strings.Cut(address, ":")
		serve(t, "http://"+address, azurite, "--blobHost", "127.0.0.1", "--blobPort", port, "--location", t.TempDir(),
			"--silent", "--skipApiVersionCheck")
		way := wayTo(t, "http://"+address, nil)
		// No URL of a store leads to an emulator.
		t.Setenv("AZURE_STORAGE_PROTOCOL", "http")
		t.Setenv("AZURE_STORAGE_IS_LOCAL_EMULATOR", "true")
		t.Setenv("AZURE_STORAGE_DOMAIN", strings.TrimPrefix(way.URL, "http://"))
		bucket, err := blob.OpenBucket(context.Background(), "azblob://backups")
		require.NoError(t, err)
		var client *container.Client
		require.True(t, bucket.As(&client))
		_, err = client.Create(context.Background(), nil)
		require.NoError(t, err)
		return archive.Place{URL: "azblob://backups/etcd", CAFile: a.file}, way
	},
}

// authority signs the certificates of ways that speak TLS: a file of its own certificate, and what servers need.
type authority struct {
	file    string
	servers *tls.Config
}

// theAuthority is one for all tests, because a process trusts one file.
var theAuthority = sync.OnceValues(func() (authority, error) {
	some := httptest.NewTLSServer(http.NotFoundHandler())
	defer some.Close()
	dir, err := os.MkdirTemp("", "authority-")
	if err != nil {
		return authority{}, err
	}
	a := authority{filepath.Join(dir, "ca.crt"),
		&tls.Config{MinVersion: tls.VersionTLS12, Certificates: some.TLS.Certificates}}
	return a, os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: some.Certificate().Raw}),
		0o600)
})

// objects are all that a store keeps.
func objectsIn(t *testing.T, place archive.Place) []string {
	t.Helper()
	u, err := url.Parse(place.URL)
	require.NoError(t, err)
	u.Path = ""
	if u.Scheme == "gs" {
		u.RawQuery = "anonymous=true" // gocloud's own opener wants to be told
	}
	bucket, err := blob.OpenBucket(context.Background(), u.String())
	require.NoError(t, err)
	defer bucket.Close()
	var found []string
	all := bucket.List(nil)
	for {
		object, err := all.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		found = append(found, object.Key)
	}
}

// A snapshot goes to every kind of store and comes back; one that is stopped on the way leaves nothing; and a caller
// that is refused is told.
func TestStores(t *testing.T) {
	version := etcdproc.Versions[len(etcdproc.Versions)-1]
	c := etcdproc.Start(t, version, "demo", 1)
	client := c.Members[0].Client()
	value := make([]byte, 1<<20)
	for i := range 24 { // three parts of an upload
		_, _ = rand.Read(value)
		_, err := client.Put(context.Background(), fmt.Sprint("key-", i), string(value))
		require.NoError(t, err)
	}
	a, err := theAuthority()
	require.NoError(t, err)
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			place, way := start(t, a)
			o := order(t, version, "", c.Members[0].ClientURL)
			o.Place = place
			storeStory(t, o, way)
		})
	}
	t.Run("locks", func(t *testing.T) { lockedStores(t, version, c, a) })
}

func storeStory(t *testing.T, o archive.Order, way *way) {
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	o.Form = archive.Form{Compression: v1beta1.CompressZstd, Recipients: []age.Recipient{identity.Recipient()}}
	file := filepath.Join(t.TempDir(), "identity")
	require.NoError(t, os.WriteFile(file, []byte(identity.String()+"\n"), 0o600))

	chapter(t, "there and back", func(t *testing.T) {
		report, err := archive.Take(context.Background(), o)
		require.NoError(t, err)
		assert.False(t, report.VerifiedAt.IsZero())
		kept := []string{"etcd/" + o.Key, "etcd/" + o.Key + ".contents", "etcd/" + o.Key + ".json"}
		assert.Equal(t, kept, objectsIn(t, o.Place))
		fetched := filepath.Join(t.TempDir(), "db")
		from := archive.Source{URL: report.URI, CAFile: o.Place.CAFile, IdentityFile: file, SHA256: report.SHA256}
		record, err := archive.Fetch(context.Background(), from, fetched)
		require.NoError(t, err)
		assert.Equal(t, report.Hash, record.Hash)
	})
	chapter(t, "stopped on the way", func(t *testing.T) {
		discard(t, o)
		for _, at := range []int64{0, 1 << 20, 9 << 20, 20 << 20} {
			ctx, stop := context.WithTimeout(context.Background(), time.Minute)
			way.after(at, stop)
			_, err := archive.Take(ctx, o)
			require.Error(t, err)
			way.after(0, nil)
			assert.Empty(t, objectsIn(t, o.Place), "stopped after %d bytes: %v", at, err)
			stop()
		}
	})
	chapter(t, "discarded, and discarded again", func(t *testing.T) {
		_, err := archive.Take(context.Background(), o)
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, archive.Discard(context.Background(), o.Place, o.Key))
			assert.Empty(t, objectsIn(t, o.Place))
		}
		_, err = archive.Fetch(context.Background(), archive.Source{URL: objectURL(o), CAFile: o.Place.CAFile},
			filepath.Join(t.TempDir(), "db"))
		assert.Equal(t, archive.NotFound, archive.ReasonOf(err), "%v", err)
	})
	chapter(t, "no such bucket", func(t *testing.T) {
		wrong := o
		wrong.Place.URL = strings.Replace(o.Place.URL, "/etcd", "-elsewhere/etcd", 1)
		_, err := archive.Take(context.Background(), wrong)
		assert.Equal(t, archive.NotFound, archive.ReasonOf(err), "%v", err)
	})
	chapter(t, "wrong credentials", func(t *testing.T) {
		if strings.HasPrefix(o.Place.URL, "gs:") {
			t.Skip("the server asks for none")
		}
		t.Setenv("AWS_SECRET_ACCESS_KEY", "another")
		_, err := archive.Take(context.Background(), o)
		if strings.HasPrefix(o.Place.URL, "s3:") {
			assert.Equal(t, archive.Denied, archive.ReasonOf(err), "%v", err)
		}
	})
	chapter(t, "no store there", func(t *testing.T) {
		way.Close()
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		_, err := archive.Take(ctx, o)
		assert.Equal(t, archive.Unreachable, archive.ReasonOf(err), "%v", err)
	})
}

func objectURL(o archive.Order) string {
	folder, query, asked := strings.Cut(o.Place.URL, "?")
	if asked {
		query = "?" + query
	}
	return folder + "/" + o.Key + query
}

// lockedStores: a snapshot goes into a bucket with S3's object lock, is verified and comes back. With versions of
// objects, as Amazon has it, a deletion hides what the lock keeps; without, the server refuses, and that is told.
func lockedStores(t *testing.T, version string, c *etcdproc.Cluster, a authority) {
	for _, versions := range []bool{true, false} {
		for _, by := range []string{"each object", "the bucket"} {
			name := by + ", one version"
			var options []string
			if versions {
				name, options = by+", versions", []string{"--versioning-dir", t.TempDir()}
			}
			t.Run(name, func(t *testing.T) {
				address, client := serveS3(t, true, options...)
				o := order(t, version, "", c.Members[0].ClientURL)
				o.Place = archive.Place{URL: "s3://backups/etcd" + s3Query + "http://" + address, CAFile: a.file}
				if by == "each object" {
					o.Form.Lock = &archive.Lock{Mode: "governance", For: time.Hour}
				} else {
					lockBucket(t, client)
				}
				lockStory(t, o, client, versions)
			})
		}
	}
}

// lockBucket has the bucket lock each object for a day.
func lockBucket(t *testing.T, client *s3.Client) {
	t.Helper()
	bucket, days := "backups", int32(1)
	_, err := client.PutObjectLockConfiguration(t.Context(), &s3.PutObjectLockConfigurationInput{Bucket: &bucket,
		ObjectLockConfiguration: &types.ObjectLockConfiguration{ObjectLockEnabled: types.ObjectLockEnabledEnabled,
			Rule: &types.ObjectLockRule{DefaultRetention: &types.DefaultRetention{Days: &days,
				Mode: types.ObjectLockRetentionModeGovernance}}}})
	require.NoError(t, err)
}

func lockStory(t *testing.T, o archive.Order, client *s3.Client, versions bool) {
	report, err := archive.Take(t.Context(), o)
	require.NoError(t, err)
	assert.False(t, report.VerifiedAt.IsZero(), "it is verified, though its record may not be replaced")
	bucket, key := "backups", "etcd/"+o.Key
	if o.Form.Lock != nil {
		found, err := client.GetObjectRetention(t.Context(), &s3.GetObjectRetentionInput{Bucket: &bucket, Key: &key})
		require.NoError(t, err)
		assert.Equal(t, types.ObjectLockRetentionModeGovernance, found.Retention.Mode)
	}
	_, err = archive.Fetch(t.Context(), archive.Source{URL: report.URI, CAFile: o.Place.CAFile, SHA256: report.SHA256},
		filepath.Join(t.TempDir(), "db"))
	require.NoError(t, err)

	err = archive.Discard(context.Background(), o.Place, o.Key)
	if !versions {
		assert.Equal(t, archive.Locked, archive.ReasonOf(err), "%v", err)
		assert.Len(t, objectsIn(t, o.Place), 3, "all of it stays")
		t.Log(err)
		return
	}
	require.NoError(t, err)
	assert.Empty(t, objectsIn(t, o.Place))
	kept, err := client.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &bucket, Prefix: &key})
	require.NoError(t, err)
	assert.NotEmpty(t, kept.Versions, "the lock keeps it")
}

// TestRecoveriesFromStores: from every kind of store, with what a stream has stored and without any stream, a snapshot
// comes back by every way that a cluster asks for it. Each way begins with the second pod of a recovery, too: one that
// is told where the first has ended.
func TestRecoveriesFromStores(t *testing.T) {
	version := etcdproc.Versions[len(etcdproc.Versions)-1]
	a, err := theAuthority()
	require.NoError(t, err)
	kinds := maps.Clone(servers)
	kinds["file"] = func(t *testing.T, _ authority) (archive.Place, *way) {
		return archive.Place{URL: "file:///backups/etcd", Dir: t.TempDir()}, nil
	}
	for name, start := range kinds {
		t.Run(name, func(t *testing.T) {
			m := etcdproc.Start(t, version, "demo", 1).Members[0]
			place, _ := start(t, a)
			base := put(t, m.Client(), "before", 5)
			o := order(t, version, "", m.ClientURL)
			o.Place, o.Verify = place, false
			taken, err := archive.Take(t.Context(), o)
			require.NoError(t, err)
			r := recovering{version: version, place: place, url: taken.URI, id: taken.ClusterID}
			r.ends(t, base, "--as-far-as-possible")
			r.ends(t, base, "--as-far-as-possible", fmt.Sprint("--until-revision=", base))
			r.ends(t, base, fmt.Sprint("--until-revision=", base))
			end := r.stream(t, m, base)
			r.ends(t, end, "--as-far-as-possible")
			r.ends(t, end, "--as-far-as-possible", fmt.Sprint("--until-revision=", end))
			r.ends(t, end)
			r.ends(t, base+1, fmt.Sprint("--until-revision=", base+1))
		})
	}
}

// recovering is a snapshot with its stream, as the program restores it.
type recovering struct {
	version string
	place   archive.Place
	url, id string
}

// stream stores what is written behind a revision, and returns the last.
func (r recovering) stream(t *testing.T, m *etcdproc.Member, from int64) int64 {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	o := stream.Options{Cluster: archive.Cluster{Endpoints: []string{m.ClientURL}}, Tail: "tail", Place: r.place,
		FromRevision: from, FlushAfter: 200 * time.Millisecond, MaxSize: 1 << 20, Log: slog.New(slog.DiscardHandler)}
	monitor, ended := stream.NewMonitor(o.FlushAfter), make(chan error, 1)
	go func() {
		_, err := stream.Run(ctx, o, monitor)
		ended <- err
	}()
	end := put(t, m.Client(), "behind", 5)
	etcdproc.Eventually(t, "all is stored", func(context.Context) error {
		at := monitor.Report().StoredRevision
		return while(at != end, "%d is stored of %d", at, end)
	})
	stop()
	require.NoError(t, <-ended)
	return end
}

// ends restores, and looks where that ends.
func (r recovering) ends(t *testing.T, revision int64, more ...string) {
	t.Helper()
	folder, query, _ := strings.Cut(r.place.URL, "?")
	args := append([]string{"--data-dir=" + filepath.Join(t.TempDir(), "data"), "--marker=" + t.TempDir() + "/none",
		"--name=a", "--peer-url=http://127.0.0.1:1", "--etcd-version=" + r.version, "--url=" + r.url,
		"--tail-url=" + strings.TrimSuffix(folder+"/tail/"+r.id+"?"+query, "?"), "--store-url=" + r.place.URL,
		"--store-dir=" + r.place.Dir, "--store-ca=" + r.place.CAFile,
		"--etcd=" + etcdproc.Program(t, r.version, "etcd"), "--etcdutl=" + etcdproc.Program(t, r.version, "etcdutl")},
		more...)
	env := map[string]string{"ETCD_INITIAL_CLUSTER": "a=http://127.0.0.1:1", "ETCD_INITIAL_CLUSTER_TOKEN": "t"}
	var out bytes.Buffer
	code := commands.Restore(t.Context(), args, func(name string) string { return env[name] }, &out, io.Discard)
	require.Zero(t, code, "%v: %s", more, out.String())
	report, err := stores.Read[stores.Restore](strings.TrimSpace(out.String()))
	require.NoError(t, err)
	assert.Equal(t, revision, report.UntilRevision, "%v: %s", more, out.String())
	assert.Equal(t, revision, report.Revision)
	assert.Empty(t, report.Ended)
}
